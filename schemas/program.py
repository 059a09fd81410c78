"""Programs of both halves: stop signals, outputs that nobody reads any more, killed parents."""

import errno
import gc
import io
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WRITE_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_OUTPUT, _ERRORS = 1, 2  # numbers of standard output and error


def begin_program(signals: tuple[signal.Signals, ...] = STOP_SIGNALS) -> None:
    """Prepares for imports that take seconds; `run_program` follows them.

    Stop signals end this process at once, with a sentence and 128 + the signal's number. There is
    nothing to clean up yet, and libraries turn an exception that comes while they are imported into
    other errors. A program that has something to clean up sets handlers of its own when it begins
    to.

    No garbage is collected before `run_program`. Imports of TensorFlow and Beam make hundreds of
    thousands of objects that stay; to look through them again and again would take a quarter of the
    time.
    """
    _open_standard_files()
    for stop_signal in signals:
        signal.signal(stop_signal, _leave)
    gc.disable()


def _open_standard_files() -> None:
    """Opens those of standard input, output and error that are closed, to lead nowhere.

    Otherwise a file of the program would get the number. What a library prints would go into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _leave(number: int, _: FrameType | None) -> None:
    # Not by print: the signal may have come while that was writing.
    with suppress(OSError):  # nobody reads it any more
        os.write(_ERRORS, f"stopped by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)


def run_program(main: Callable[[], int]) -> NoReturn:
    """Runs a command's `main`, and exits with the status that it returns.

    Characters that standard output can't encode, as in a container whose locale is C, are escaped.

    If what reads standard output has ended, as `head` does after some lines, the program ends
    quietly with 141, the status that shells have for it. If standard output can't be written for
    another reason, such as a full disk, it ends with a sentence and status 1.
    """
    gc.freeze()  # what was imported is not looked through later either
    gc.enable()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as Python does for standard error
    try:
        status = main()
        if sys.stdout:  # None where it was closed when Python started
            sys.stdout.flush()
    except OSError as error:
        if not _is_of_output(error):
            raise  # of another file, pipe or socket
        # Python flushes standard output once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _OUTPUT)
        status = 128 + signal.SIGPIPE
        if not isinstance(error, BrokenPipeError):
            print(f"error: standard output can't be written: {error.strerror}", file=sys.stderr)
            status = 1
    sys.exit(status)


def _is_of_output(error: OSError) -> bool:
    """Returns whether an error is of standard output."""
    if isinstance(error, BrokenPipeError):
        poll = select.poll()
        poll.register(_OUTPUT, select.POLLOUT)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    if error.errno not in _WRITE_FAILURES or error.filename or not sys.stdout:
        return False
    try:
        sys.stdout.flush()
        os.write(_OUTPUT, b"\n")  # where Python keeps no text, nothing is left to flush
    except OSError:
        return True
    return False


def end_with_parent() -> None:
    """Has a thread end this process of `multiprocessing` once the one that started it has ended.

    Where that one is killed, nothing else would.
    """
    if parent := multiprocessing.parent_process():

        def end() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=end, name="end with parent", daemon=True).start()
