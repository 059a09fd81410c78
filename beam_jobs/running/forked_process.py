"""The beginning and the end of a worker in a forked process."""

import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Set
from contextlib import suppress
from typing import NoReturn


def run_and_exit(work: Callable[[], None], connection: socket.socket) -> NoReturn:
    """Does the work of a forked process, and ends it.

    Args:
      work: what it does.
      connection: is sent the exit status, a byte: 1 for an exception, which is printed.
    """
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        logging.shutdown()
        sys.stdout.flush()
        with suppress(OSError):  # who asked has ended
            connection.sendall(bytes([status]))
        os._exit(status)


def end_with(connection: socket.socket) -> None:
    """Ends this process as soon as the one at the other end of a connection has ended."""

    def wait() -> None:
        connection.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def ended(workers: Set[int]) -> set[int]:
    """Returns the process ids of children that have ended."""
    return {worker for worker in workers if os.waitpid(worker, os.WNOHANG)[0]}
