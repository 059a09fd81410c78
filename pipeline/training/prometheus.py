"""Metrics of a run for Prometheus, served over HTTP while it trains."""

from collections.abc import Iterator
from typing import Any, Self

from pipeline.training.ledger import Ledger

_HIGHEST_PORT = 65_535
_HELP = "Seconds of the run by what they were spent on; they add up to its wall time"


def port_number(text: str) -> int:
    """Reads the number of a port.

    Raises:
      ValueError: there is no such port.
    """
    if not text.isdecimal() or not 1 <= int(text) <= _HIGHEST_PORT:
        raise ValueError(f"must be 1 to {_HIGHEST_PORT}, got {text!r}")
    return int(text)


class PrometheusServer:
    """Serves `tillroll_run_seconds` by category and `tillroll_run_step` at /metrics.

    It listens on all addresses of this machine, as Prometheus usually comes from another one. The
    seconds are those of the run's `Ledger`, of all its processes. They are gauges: after a kill,
    those of the steps that are taken again move to "lost".

    Attributes:
      step: steps done, set by the training loop.
    """

    def __init__(self, port: int, ledger: Ledger) -> None:
        """Starts the server.

        Raises:
          ValueError: the port is taken or not allowed, or prometheus-client is not installed.
        """
        try:
            import prometheus_client
        except ImportError as error:
            raise ValueError(
                "--prometheus-port needs the library prometheus-client: pip install "
                "'tillroll[train,prometheus]' brings it"
            ) from error
        self.step = 0
        self._ledger = ledger
        registry = prometheus_client.CollectorRegistry()
        registry.register(self)  # which calls `collect` at each scrape
        try:
            self._server, self._thread = prometheus_client.start_http_server(
                port, registry=registry
            )
        except OSError as error:
            raise ValueError(
                f"--prometheus-port {port} can't be listened on ({error.strerror}): choose "
                "another port"
            ) from error

    def collect(self) -> Iterator[Any]:
        """Yields the metrics as they are now."""
        from prometheus_client.core import GaugeMetricFamily

        seconds = GaugeMetricFamily("tillroll_run_seconds", _HELP, labels=["category"])
        for category, value in self._ledger.read().items():
            seconds.add_metric([category], value)
        yield seconds
        yield GaugeMetricFamily("tillroll_run_step", "Steps done", value=self.step)

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
