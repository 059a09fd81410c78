"""Waiting for other processes: whoever answers is found, and whoever does not is named."""

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from benchmarks.harness.addresses import reserved_addresses
from pipeline.distribution.peers import host_and_port, unanswered, wait_for_peers


@pytest.fixture(autouse=True)
def shared_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_GRPC_REUSE_PORT", "true")


@pytest.mark.parametrize(
    ("address", "expected"),
    [("a:1", ("a", 1)), ("10.0.0.7:65535", ("10.0.0.7", 65535)), ("[::1]:5050", ("::1", 5050))],
)
def test_addresses(address: str, expected: tuple[str, int]):
    assert host_and_port(address) == expected


@pytest.mark.parametrize(
    "address", ["5050", "host:", "host:port", "host:0", ":5050", "host:70000", "h:²", "h" * 900]
)
def test_an_address_has_a_host_and_a_port(address: str):
    with pytest.raises(ValueError, match=r"is no HOST:PORT, such as 10\.0\.0\.7:5050$") as raised:
        host_and_port(address)
    assert len(str(raised.value)) < 150


@pytest.mark.parametrize("count", [2, 5])
def test_peers_that_wait_for_each_other(count: int):
    """Each answers the others while it waits, and leaves its port to the server to come."""
    with ExitStack() as stack:
        addresses = stack.enter_context(reserved_addresses(count))
        pool = stack.enter_context(ThreadPoolExecutor(count))

        def wait(own: str) -> None:
            others = {address: "worker" for address in addresses if address != own}
            wait_for_peers(others, own_address=own, limit_s=60)
            # As TensorFlow's, which stays.
            stack.enter_context(socket.create_server(("", host_and_port(own)[1]), reuse_port=True))

        waiting = [pool.submit(wait, address) for address in addresses]
        assert [each.result() for each in waiting] == [None] * count


def test_who_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("pipeline.distribution.peers._TELL_AFTER_S", 0.0)
    with reserved_addresses(9) as addresses, socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        names = {there: "chief", **{name: f"worker {n}" for n, name in enumerate(addresses)}}
        listing = ", ".join(
            f"worker {number} at {address} (Connection refused)"
            for number, address in enumerate(addresses[:5])
        )
        with pytest.raises(TimeoutError, match=re.escape(f"{listing} and 4 more")):
            wait_for_peers(names, limit_s=0.5)
        # Once, and not at each try.
        assert capsys.readouterr().err == f"waiting for {listing} and 4 more\n"
        assert unanswered(names) == f"{listing} and 4 more"
        assert unanswered({there: "chief"}) == ""


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TF_GRPC_REUSE_PORT")
    with socket.create_server(("127.0.0.1", 0)) as server:
        own = f"127.0.0.1:{server.getsockname()[1]}"
        sentence = f"this process can't listen at its address {own} (Address already in use): end"
        with pytest.raises(ValueError, match=re.escape(sentence)):
            wait_for_peers({}, own_address=own)
