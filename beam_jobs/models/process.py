"""A model in a process of its own, so that a job outlives an image that ends it.

Run as a program, this module is that process.
"""

from collections.abc import Callable, Sequence
from typing import Self

from beam_jobs.errors import BuildError
from beam_jobs.images.process import WALL_SECONDS
from beam_jobs.images.separate_process import EndedError, SeparateProcess, serve_requests
from beam_jobs.models.model import Outputs, PredictionError, load
from beam_jobs.models.saved_model import SavedModel
from beam_jobs.rejection import Reason, RejectionError

_TRIES = 2
_Answer = Outputs | PredictionError | BuildError


class ModelProcess:
    """A `Model` in a separate process, started for the first batch.

    An image that crashes the model, or makes it take all memory, ends that process and not the
    worker. A batch that ends two processes is refused as one that the model can't predict; an image
    that does so by itself is rejected. A single kill from outside rejects no image.

    Use it as a context manager: it ends the process.

    Args:
      model: the model.
      max_seconds: as in `ImageOptions`; a batch may take ten times as long.
    """

    def __init__(self, model: SavedModel, *, max_seconds: int) -> None:
        self._limit_s = WALL_SECONDS * max_seconds
        self._process = SeparateProcess(__spec__.name, model, task="runs the model apart")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def predict(self, images: Sequence[bytes]) -> Outputs:
        """Predicts image files.

        Raises:
          PredictionError: the model refuses one of them, or several ended two processes.
          RejectionError: a single image ended two processes, or took too long.
        """
        ends = []
        for _ in range(_TRIES):
            try:
                answer: _Answer = self._process.ask(list(images), limit_s=self._limit_s)
            except EndedError as error:
                if error.overdue:
                    message = f"predicting takes more than {self._limit_s} s"
                    raise _refusal(images, Reason.TOO_SLOW, message) from error
                ends.append(error.name)
                continue
            if isinstance(answer, PredictionError | BuildError):
                raise answer
            return answer
        message = f"predicting ended {_TRIES} processes that did nothing else: {', '.join(ends)}"
        raise _refusal(images, Reason.KILLED_WORKER, message)


def _refusal(images: Sequence[bytes], reason: Reason, message: str) -> Exception:
    return RejectionError(reason, message) if len(images) == 1 else PredictionError(message)


def _make_answer(model: SavedModel) -> Callable[[Sequence[bytes]], _Answer]:
    loaded = load(model)

    def answer(images: Sequence[bytes]) -> _Answer:
        try:
            return loaded.predict(images)
        except (PredictionError, BuildError) as error:
            return error

    return answer


if __name__ == "__main__":
    serve_requests(_make_answer)
