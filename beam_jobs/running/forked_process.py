"""The beginning and the end of a worker in a forked process."""

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Set
from contextlib import suppress
from typing import NoReturn

from beam_jobs.errors import is_short_of_resources

FAILED, CANT_START = 1, 2  # exit statuses


def run_and_exit(work: Callable[[], None], connection: socket.socket) -> NoReturn:
    """Does the work of a forked process, and ends it, whatever is raised.

    Anything else would run on in the code of the process that was forked.

    Args:
      work: what it does.
      connection: is sent the exit status, a byte: FAILED for an exception, which is printed, but
        CANT_START where the system starts no more threads, which needs no traceback.
    """
    status = FAILED
    try:
        try:
            work()
            status = 0
        except BaseException as error:
            if is_short_of_resources(error):
                status = CANT_START
            else:
                traceback.print_exc()
        if sys.stdout:
            with suppress(OSError, ValueError):  # it is closed, or its disk is full
                sys.stdout.flush()
        with suppress(OSError):  # the client has exited
            connection.sendall(bytes([status]))
    finally:
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
