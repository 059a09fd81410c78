"""Ports of this machine, for servers that programs start."""

import contextlib
import socket
from collections.abc import Iterator

# With it in their environment, servers of TensorFlow listen at a port that a socket reserves.
SHARED_PORTS = {"TF_GRPC_REUSE_PORT": "true"}


@contextlib.contextmanager
def reserved_addresses(count: int) -> Iterator[list[str]]:
    """Yields different addresses for the processes of a cluster, which nobody else gets meanwhile.

    A process needs seconds until it listens. A port that was only looked up may be given to another
    program before.

    Args:
      count: number of addresses. Who listens at one has `SHARED_PORTS` in its environment.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def free_port() -> int:
    """Returns a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
