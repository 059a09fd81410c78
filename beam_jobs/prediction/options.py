"""Options of a job that predicts."""

from dataclasses import asdict, dataclass
from typing import Any

from beam_jobs.models.saved_model import SavedModel
from beam_jobs.options import InputOptions
from beam_jobs.prediction.records import RecordSource
from schemas.predictions import FileFormat

_INPUTS_PER_FILE = 100_000
_MAX_FILES = 10_000
_MAX_BATCH = 4096


@dataclass(frozen=True, kw_only=True)
class PredictOptions(InputOptions):
    """Options of a job that predicts.

    Attributes:
      model: the model.
      batch_size: images that the model sees at a time, in each worker; part of what decides on the
        last digits of a prediction.
      format: parquet, or jsonl for JSON lines.
      files: number of files with predictions; None for one for each 100,000 inputs.
    """

    model: SavedModel
    batch_size: int = 32
    format: FileFormat = "parquet"
    files: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.batch_size <= _MAX_BATCH:
            raise ValueError(f"batch_size must be 1 to {_MAX_BATCH}, got {self.batch_size}")
        if self.files is not None and not 1 <= self.files <= _MAX_FILES:
            raise ValueError(f"files must be 1 to {_MAX_FILES}, got {self.files}")

    @property
    def paths(self) -> tuple[str, ...]:
        """Files and folders that all workers must reach, the output first."""
        return (*super().paths, self.model.path)

    def file_count(self, inputs: int) -> int:
        """Number of files with the predictions of so many inputs."""
        return self.files or -(-inputs // _INPUTS_PER_FILE)

    def recorded(self) -> dict[str, Any]:
        """The options that shape the predictions, for their manifest."""
        source = {"path": self.source.path}
        if isinstance(self.source, RecordSource):
            source = asdict(self.source)
        return {
            "source": source,
            "model": {"path": self.model.path, "signature": self.model.signature},
            "image": asdict(self.image),
            "batch_size": self.batch_size,
            "format": self.format,
            "files": self.files,
        }
