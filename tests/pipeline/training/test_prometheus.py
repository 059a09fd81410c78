"""Metrics that Prometheus scrapes."""

import builtins
import re
import socket
import urllib.request
from typing import Any

import pytest

pytest.importorskip("tensorflow")

from benchmarks.harness.addresses import free_port
from pipeline.train_arguments import make_parser
from pipeline.training.ledger import CATEGORIES, Ledger
from pipeline.training.prometheus import PrometheusServer


def scrape(port: int) -> dict[str, float]:
    """Values by metric with its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        lines = response.read().decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


def test_a_scrape():
    pytest.importorskip("prometheus_client")
    now = 0.0
    ledger = Ledger(began=0.0, clock=lambda: now)
    port = free_port()
    with PrometheusServer(port, ledger) as server:
        now = 3.0
        ledger.enter("evaluation")
        now = 10.0
        server.step = 200
        seconds = {f'tillroll_run_seconds{{category="{name}"}}': 0.0 for name in CATEGORIES}
        seconds['tillroll_run_seconds{category="start"}'] = 3
        seconds['tillroll_run_seconds{category="evaluation"}'] = 7
        assert scrape(port) == {**seconds, "tillroll_run_step": 200}
    with pytest.raises(OSError, match="refused"):
        scrape(port)


def test_a_port_that_is_taken():
    pytest.importorskip("prometheus_client")
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = (
            f"--prometheus-port {port} can't be listened on (Address already in use): choose "
            "another port"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            PrometheusServer(port, Ledger())


def test_without_the_library(monkeypatch: pytest.MonkeyPatch):
    imported = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    sentence = (
        "--prometheus-port needs the library prometheus-client: pip install "
        "'tillroll[train,prometheus]' brings it"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        PrometheusServer(1234, Ledger())


@pytest.mark.parametrize("text", ["0", "65536", "-1", "x", "9.5", "²"])
def test_no_port(text: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        make_parser().parse(["data", "--run-dir=run", f"--prometheus-port={text}"])
    sentence = f"error: argument --prometheus-port: must be 1 to 65535, got {text!r}\n"
    assert capsys.readouterr().err.endswith(sentence)
