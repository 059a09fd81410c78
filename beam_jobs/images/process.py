"""Images prepared in a separate process, under limits, so that a build outlives its end.

Run as a program, this module is that process.
"""

import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from beam_jobs.images.image import ImageOptions, StoredImage, store_image, without_pixels
from beam_jobs.images.separate_process import EndedError, SeparateProcess, serve_requests
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
        self._process = SeparateProcess(__spec__.name, options, task="prepares large images")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def store_image(self, data: bytes, boxes: Sequence[Box]) -> StoredImage:
        """Prepares an image as `image.store_image` does; the result holds no pixels.

        Raises:
          RejectionError: also if preparing the image exceeds a limit, or ends two processes.
        """
        ends = []
        for _ in range(_TRIES):
            try:
                # The process limits its own processor time; this limit is for a decoder that waits
                # and uses none.
                answer: _Answer = self._process.ask(
                    (data, boxes), limit_s=WALL_SECONDS * self._options.max_seconds
                )
            except EndedError as error:
                if error.status == -signal.SIGXCPU or error.overdue:
                    raise RejectionError(
                        Reason.TOO_SLOW,
                        f"preparing takes more than {self._options.max_seconds} s of processor "
                        "time: raise --max-image-seconds if the image is genuine",
                    ) from error
                ends.append(error.name)
                continue
            if isinstance(answer, RejectionError):
                raise answer
            return answer
        raise RejectionError(
            Reason.KILLED_WORKER,
            f"preparing the image ended {_TRIES} processes that did nothing else: "
            f"{', '.join(ends)}",
        )


def _make_answer(options: ImageOptions) -> Callable[[tuple[bytes, Sequence[Box]]], _Answer]:
    # A process that a crash or a limit ends would write all its memory to a file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return lambda request: _prepare(*request, options)


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
    serve_requests(_make_answer)
