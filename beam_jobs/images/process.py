"""Images prepared in a separate process, under limits, so that a build outlives its end.

Run as a program, this module is that process. It reads pickled requests from its standard input
and writes the pickled answers to its standard output, until the input ends.
"""

import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Self

from beam_jobs.errors import BuildError
from beam_jobs.images.image import ImageOptions, StoredImage, store_image, without_pixels
from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.sources.row import Box

_TRIES = 2
WALL_SECONDS = 10  # for each second of processor time that is allowed
_Answer = StoredImage | RejectionError


class ImageProcess:
    """Prepares images in a separate process, started for the first of them.

    A decoder that crashes, hangs or takes all memory ends that process and not the worker, which
    tries the image once more in a new process. An image that ends both is rejected. A single kill
    from outside, for example by a system short of memory, rejects no image; nor does a kill of the
    whole build, as the worker that would reject the image dies with it.

    Use it as a context manager: it ends the process.
    """

    def __init__(self, options: ImageOptions) -> None:
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.kill()
            self._ended()

    def store_image(self, data: bytes, boxes: Sequence[Box]) -> StoredImage:
        """Prepares an image as `image.store_image` does; the result holds no pixels.

        Raises:
          RejectionError: also if preparing the image exceeds a limit, or ends two processes.
        """
        statuses = []
        for _ in range(_TRIES):
            answer = self._answer(data, boxes)
            if isinstance(answer, StoredImage):
                return answer
            if isinstance(answer, RejectionError):
                raise answer
            statuses.append(_name(answer))
        raise RejectionError(
            Reason.KILLED_WORKER,
            f"preparing the image ended {_TRIES} processes that did nothing else: "
            f"{', '.join(statuses)}",
        )

    def _answer(self, data: bytes, boxes: Sequence[Box]) -> _Answer | int:
        """Returns the answer, or the exit status of a process that ended without one."""
        process = self._process = self._process or _started(self._options)
        assert process.stdin is not None
        assert process.stdout is not None
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            process.kill()

        # The process limits its own processor time; this is for a decoder that waits and uses none.
        timer = threading.Timer(WALL_SECONDS * self._options.max_seconds, end)
        timer.start()
        try:
            pickle.dump((data, boxes), process.stdin)
            process.stdin.flush()
            answer: _Answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):  # the process is gone
            status = self._ended()
        else:
            return answer
        finally:
            timer.cancel()
        if status == -signal.SIGXCPU or overdue.is_set():
            return RejectionError(
                Reason.TOO_SLOW,
                f"preparing takes more than {self._options.max_seconds} s of processor time: raise "
                "--max-image-seconds if the image is genuine",
            )
        return status

    def _ended(self) -> int:
        """Waits for the process, which has ended or is about to, and returns its exit status."""
        process, self._process = self._process, None
        assert process is not None
        process.communicate()  # closes the pipes
        return process.returncode


def _started(options: ImageOptions) -> subprocess.Popen[bytes]:
    folders = [*sys.path, os.environ.get("PYTHONPATH", "")]  # it must find this very package
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
        start_new_session=True,  # a Ctrl-C is for the build, not for one image of it
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump(options, process.stdin)
        process.stdin.flush()
        pickle.load(process.stdout)
    except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
        process.communicate()
        raise BuildError(
            "the process that prepares large images could not start, it ended with "
            f"{_name(process.returncode)}: make sure that a worker has memory for a second "
            "process, and run the same command again"
        ) from error
    return process


def _name(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Reads options and answers True; then answers each request (data, boxes) until they end."""
    options: ImageOptions = pickle.load(requests)
    # A process that a crash or a limit ends would write all its memory to a file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer: _Answer | bool = True
    while True:
        pickle.dump(answer, answers)
        answers.flush()
        try:
            data, boxes = pickle.load(requests)
        except EOFError:
            return
        answer = _prepare(data, boxes, options)


def _prepare(data: bytes, boxes: Sequence[Box], options: ImageOptions) -> _Answer:
    # Both limits are of the whole process and its whole life: what it has used so far comes on top.
    address_space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, address_space + options.max_memory_bytes)
    _limit(resource.RLIMIT_CPU, int(time.process_time()) + 1 + options.max_seconds)
    try:
        return without_pixels(store_image(data, boxes, options))
    except RejectionError as error:
        return error
    except MemoryError:
        return RejectionError(
            Reason.TOO_MUCH_MEMORY,
            f"preparing takes more than {options.max_memory_bytes >> 20} MiB, or than this machine "
            "has: raise --max-image-memory-mb if the image is genuine",
        )
    except Exception as error:  # one image in ten million must not end the job
        return RejectionError(Reason.FAILED, f"preparing failed: {error!r}")
    finally:
        _limit(resource.RLIMIT_AS, sys.maxsize)


def _limit(kind: int, value: int) -> None:
    """Sets a soft limit; the hard one stays, so the next image can have another."""
    _, hard = resource.getrlimit(kind)
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (soft, hard))


if __name__ == "__main__":
    # What a decoder prints must not get into the answers.
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, output)
