"""The error that ends a build with a sentence for the user instead of a traceback."""

import errno
import os
import re
from collections.abc import Iterable

TRY_AGAIN = "the runner lost or repeated some; run the build again with --workers 1, or elsewhere"
RESUMES = "the same command resumes where it stopped"
_WRITE_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_SHORTAGES = (errno.EAGAIN, errno.ENOMEM)
WORKER_KILLED = "a worker process was killed"
WORKER_CRASHED = "a worker process crashed"
WORKER_FAILED = "a worker process ended with status"
WORKER_CANT_START = "a worker can't start"
NO_THREAD = "can't start new thread"  # as Python says it

# Of a job on a cluster; where Python raised an error there, its traceback follows.
_CLUSTER_FAILED = re.compile(r"Pipeline \S+ failed in state \w+: (?!.*Traceback)(.*)", re.DOTALL)


class BuildError(Exception):
    """The build can't go on; the message is for the user."""


def build_error_in(error: BaseException) -> str | None:
    """Returns the message of the BuildError that made a Beam job fail, None for other errors.

    A runner raises an error of a worker as another error, with the worker's traceback as text.
    """
    text = str(error) if isinstance(error, BuildError) else None
    if text is None:
        match = re.search(rf"{__name__}\.{BuildError.__name__}: (.*)", str(error), re.DOTALL)
        text = match.group(1) if match else None
    return text and re.split(r" \[while running|\n\n", text)[0].strip()


def is_short_of_resources(error: BaseException) -> bool:
    """Returns whether an error says that the system gives no more threads, processes or memory."""
    return (
        NO_THREAD in str(error)
        or isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno in _SHORTAGES)
    )


def failure_in(error: BaseException, thread_failures: Iterable[str] = ()) -> str | None:
    """Returns a sentence for an error that ended a Beam job, None if its traceback is needed.

    Args:
      error: what the runner raised.
      thread_failures: messages of exceptions that ended threads of the runner.
    """
    if (message := build_error_in(error)) is not None:
        return message
    for number in _WRITE_FAILURES:
        if re.search(rf"\[Errno {number}\]|OSError\({number}, ", f"{error!s} {error!r}"):
            return (
                f"files can't be written any more: {os.strerror(number)}; once that is fixed, "
                f"{RESUMES}"
            )
    if (shortage := _shortage_in(error, thread_failures)) is not None:
        return (
            f"{shortage}: raise the limits of processes and memory, or set fewer --workers; "
            f"{RESUMES}"
        )
    if WORKER_KILLED in thread_failures:
        return (
            f"{WORKER_KILLED}, probably for lack of memory: give it more, or set fewer --workers; "
            f"{RESUMES}"
        )
    for crash in thread_failures:
        if crash.startswith(WORKER_CRASHED):
            return (
                f"{crash}, as a decoder does on a damaged image; {RESUMES}, and rejects an image "
                "that ends its process again"
            )
    if str(error).startswith(WORKER_FAILED):
        return f"{error}: the lines above say why; once that is mended, {RESUMES}"
    if match := _CLUSTER_FAILED.match(str(error)):
        return (
            f"the cluster ended the job: {match.group(1).strip()}; if a worker or a machine was "
            f"lost, {RESUMES}"
        )
    return None


def _shortage_in(error: BaseException, thread_failures: Iterable[str]) -> str | None:
    """Returns which process or thread the system did not let start, None for other errors."""
    texts = (str(error), *thread_failures)
    for shortage in (WORKER_CANT_START, NO_THREAD):
        if any(shortage in text for text in texts):
            return shortage
    if isinstance(error, OSError) and error.errno in _SHORTAGES:  # of a fork
        return os.strerror(error.errno)
    return None
