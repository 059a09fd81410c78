"""Predictions of a chunk: its images are read, and given to the model batch by batch.

Batches follow from the rows of the chunk alone, whatever a runner bundles. So a retry writes the
same bytes, and so do any number of workers.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy.typing as npt

from beam_jobs.images.image import DECODER_VERSIONS, ImageOptions
from beam_jobs.images.image_file import file_of, image_file
from beam_jobs.models.model import Model, PredictionError, load, tensorflow_version
from beam_jobs.models.process import ModelProcess
from beam_jobs.models.saved_model import SavedModel
from beam_jobs.prediction.lines import json_line
from beam_jobs.prediction.records import read_record
from beam_jobs.prepare.chunk_writer import ChunkTask, ChunkWriter, digest_of, write_chunk
from beam_jobs.prepare.known import Known
from beam_jobs.prepare.prepared_chunk import PreparedChunk
from beam_jobs.prepare.staging import Staging
from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.shown import shortened, shown
from beam_jobs.sources.row import Row
from schemas import __version__
from schemas.receipt import Feature

_Values = dict[str, npt.NDArray[Any]]  # of one image


@dataclass(frozen=True, kw_only=True)
class ChunkPredictor:
    """Takes the place of `ChunkPreparer`: what is staged of a row are its predictions, as JSON.

    Attributes:
      staging: where the staging files go.
      model: the model.
      image: how the images of the model's dataset were prepared, and limits.
      batch_size: images that the model sees at a time.
      seed: seeds the hash of the ids.
      features: features of the dataset whose records are read; none for image files.
    """

    staging: Staging
    model: SavedModel
    image: ImageOptions
    batch_size: int
    seed: int
    features: tuple[Feature, ...] = ()

    def prepare(
        self, number: int, serialized_rows: Iterable[bytes], known: Known | None = None
    ) -> PreparedChunk:
        """Predicts one chunk, or returns the one that an earlier run has predicted.

        Args:
          number: the chunk.
          serialized_rows: its rows.
          known: nothing, as no dataset is appended to.
        """
        lines = sorted(serialized_rows)
        with ExitStack() as stack:
            return write_chunk(
                lines,
                staging=self.staging,
                number=number,
                digest=self._digest(lines),
                image=self.image,
                seed=self.seed,
                make_writer=lambda task: _PredictionWriter(task, self, self._model(task, stack)),
            )

    def _model(self, task: ChunkTask, stack: ExitStack) -> Model:
        if not task.apart:
            return load(self.model)
        process = ModelProcess(self.model, max_seconds=self.image.max_seconds)
        return stack.enter_context(process)

    def _digest(self, lines: Sequence[bytes]) -> bytes:
        # Not the model's path: the same model elsewhere is the same.
        model = asdict(replace(self.model, path=""))
        made_by = [__version__, *DECODER_VERSIONS, tensorflow_version(), self.seed]
        made_by += [asdict(self.image), self.batch_size, model]
        return digest_of(json.dumps(made_by), lines)


class _Ready(NamedTuple):
    """A row that waits for its batch: the bytes that were read, and the file for the model."""

    row: Row
    data: bytes
    file: bytes


class _PredictionWriter(ChunkWriter):
    """Makes the records of predictions, batch by batch."""

    def __init__(self, task: ChunkTask, predictor: ChunkPredictor, model: Model) -> None:
        super().__init__(task)
        self._batch_size = predictor.batch_size
        self._model = model
        self._outputs = predictor.model.outputs
        self._features = predictor.features

    def records(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """Predicts rows; yields a framed record of each, accepted or rejected."""
        ready: list[_Ready] = []
        for row in rows:
            data = b""
            try:
                try:
                    data = read_record(row, self._features) if self._features else self.read(row)
                finally:
                    self.add_to_fingerprint(row, data)
                if row.problem:
                    raise RejectionError(Reason(row.problem[0]), row.problem[1])
                ready.append(_Ready(row, data, self._file(row, data)))
            except RejectionError as error:
                yield self.reject(row, data, error)
            if len(ready) == self._batch_size:
                yield from self._predicted(ready)
                ready = []
        if ready:
            yield from self._predicted(ready)

    def chunk(self) -> PreparedChunk:
        """Returns the facts about the chunk."""
        return self.facts()

    def _file(self, row: Row, data: bytes) -> bytes:
        if self._features:
            return data  # it was prepared when the dataset was built
        with self.guard(row):
            if self.task.apart:
                return file_of(self.store_apart(data, ()))
            return image_file(data, self.task.image, large=self.store_apart)

    def _predicted(self, ready: Sequence[_Ready]) -> Iterator[bytes]:
        """Yields the record of each row of a batch."""
        outcomes = self._outcomes(ready)
        for one, outcome in zip(ready, outcomes, strict=True):
            try:
                if isinstance(outcome, RejectionError):
                    raise outcome
                record = json_line(one.row, outcome, self._outputs)
            except RejectionError as error:
                yield self.reject(one.row, one.data, error)
            else:
                yield self.accept(one.row, record)

    def _outcomes(self, ready: Sequence[_Ready]) -> list[_Values | RejectionError]:
        """Predicts a batch; where the model refuses it, each of its images by itself."""
        first = ready[0].row
        try:
            if not self.task.apart:
                name = f"the predictions of {shortened(first.uri)} (id {shown(first.id)})"
                self.task.watchdog.begin(f"{name} and {len(ready) - 1} others")
            outputs = self._model.predict([one.file for one in ready])
        except PredictionError as error:
            if len(ready) == 1:
                return [RejectionError(Reason.MODEL_FAILED, f"the model failed: {error}")]
            return [outcome for one in ready for outcome in self._outcomes([one])]
        except RejectionError as error:
            return [error]
        finally:
            self.task.watchdog.end()
        return [
            {output.name: outputs[output.name][number] for output in self._outputs}
            for number in range(len(ready))
        ]
