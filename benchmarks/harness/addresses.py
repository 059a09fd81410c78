"""Addresses for processes of one cluster on this machine."""

import contextlib
import socket


def free_addresses(count: int) -> list[str]:
    """Different free ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
