"""Waits until other processes answer at their addresses, and says for which.

TensorFlow waits for them, too, but in C++: it names nobody, and Python handles no signal meanwhile.
"""

import math
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping

_RETRY_S = 0.2
_CONNECT_S = 1.0
_TELL_AFTER_S = 1.0  # processes that are started together differ by less
_TELL_EVERY_S = 60.0
_LISTED = 5  # of thousands of workers


def host_and_port(address: str) -> tuple[str, int]:
    """Splits an address such as "10.0.0.7:5050" or "[::1]:5050".

    Raises:
      ValueError: it has another form.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError(f"{address[:80]!r} is no HOST:PORT, such as 10.0.0.7:5050")
    return host.strip("[]"), int(port)


def wait_for_peers(
    peers: Mapping[str, str], *, own_address: str | None = None, limit_s: float = math.inf
) -> None:
    """Waits until each peer has accepted a connection, and prints for whom it waits.

    Args:
      peers: what to call each peer, such as "worker 1", by its address.
      own_address: address of this process, at which it answers peers that wait for it; None where
        nobody does.
      limit_s: seconds to wait at most.

    Raises:
      TimeoutError: a peer has not answered; the message names it.
      ValueError: the port of this process is taken.
    """
    began = time.monotonic()
    tell_at = began + _TELL_AFTER_S
    listener = None if own_address is None else _listen(own_address)
    missing = dict(peers)
    try:
        while True:
            errors = _connect_to_all(missing)
            if listener:
                _accept_all(listener)
            if not errors:
                return
            missing = {address: missing[address] for address in errors}
            if time.monotonic() > began + limit_s:
                raise TimeoutError(
                    f"no answer within {limit_s:g} s from {_listing(missing, errors)}"
                )
            if time.monotonic() > tell_at:
                print(f"waiting for {_listing(missing, errors)}", file=sys.stderr, flush=True)
                tell_at += _TELL_EVERY_S
            time.sleep(_RETRY_S)
    finally:
        if listener:
            listener.close()


def unanswered(peers: Mapping[str, str]) -> str:
    """Lists the peers that do not accept a connection now, each with the reason; "" if all do."""
    return _listing(peers, _connect_to_all(peers))


def _connect_to_all(addresses: Iterable[str]) -> dict[str, OSError]:
    """Returns the addresses that accept no connection, and why."""
    errors = {address: _connect(address) for address in addresses}
    return {address: error for address, error in errors.items() if error}


def _listen(address: str) -> socket.socket:
    """Listens at the port of an address, as TensorFlow will, on every interface."""
    _, port = host_and_port(address)
    is_shared = os.environ.get("TF_GRPC_REUSE_PORT", "").lower() in ("1", "true")
    has_ipv6 = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if has_ipv6 else socket.AF_INET
    try:
        listener = socket.create_server(
            ("", port), family=family, dualstack_ipv6=has_ipv6, reuse_port=is_shared
        )
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ValueError(
            f"this process can't listen at its address {address} ({reason}): end the process that "
            "does, or choose another port for this task in TF_CONFIG"
        ) from error
    listener.setblocking(False)
    return listener


def _accept_all(listener: socket.socket) -> None:
    """Accepts and closes waiting connections, so that their queue has room for others."""
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return


def _connect(address: str) -> OSError | None:
    """Connects to an address once; returns why it failed."""
    try:
        with socket.create_connection(host_and_port(address), timeout=_CONNECT_S) as connection:
            # Linux may choose the port of a peer on this machine as our own, and connect us to us.
            is_own = connection.getsockname() == connection.getpeername()
            return ConnectionRefusedError("connected to itself") if is_own else None
    except OSError as error:
        return error


def _listing(peers: Mapping[str, str], errors: Mapping[str, OSError]) -> str:
    listed = [
        f"{peers[address]} at {address} ({error.strerror or error})"
        for address, error in list(errors.items())[:_LISTED]
    ]
    unlisted = len(errors) - len(listed)
    return ", ".join(listed) + (f" and {unlisted} more" if unlisted else "")
