"""Addresses for processes of one cluster on this machine."""

import contextlib
import socket


def free_addresses(count: int) -> list[str]:
    """Different free ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
