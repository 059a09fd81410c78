"""A directory of predictions: names of its files, and the manifest that counts them.

COMPLETED                              checksum of the manifest, written last
manifest.json                          counts, the model, the options, checksums of all files
predictions-00000-of-00004.parquet     predictions, or .jsonl, in the order of the ids' hashes
quarantine/rejected.jsonl-00000-of-…   inputs without predictions, as in a dataset directory
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from schemas import versioned_json
from schemas.file_names import COMPLETED, QUARANTINE
from schemas.manifest import FileChecksum
from schemas.typed_json import parse_as

MANIFEST = "manifest.json"
FORMAT = "tillroll-predictions"
FORMAT_VERSION = 1
FileFormat = Literal["parquet", "jsonl"]
_REPAIR = "predict again with --overwrite"
_FILE = re.compile(
    rf"predictions-\d{{5,}}-of-\d{{5,}}\.(parquet|jsonl)|{re.escape(MANIFEST)}|{COMPLETED}"
    rf"|{QUARANTINE}/rejected\.(tfrecord|jsonl)-\d{{5,}}-of-\d{{5,}}"
)


def predictions_name(number: int, count: int, file_format: FileFormat) -> str:
    """File name of some predictions: predictions-00000-of-00004.parquet."""
    return f"predictions-{number:05d}-of-{count:05d}.{file_format}"


def is_predictions_file(name: str) -> bool:
    """Returns whether tillroll writes a file of this path, relative to such a directory."""
    return _FILE.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class ModelOutput:
    """One of the values that a model gives for each image.

    Attributes:
      name: its name in the signature.
      dtype: its type, as NumPy names it, or "string".
      shape: its shape for one image; -1 for a side that differs from batch to batch.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def is_binary(self) -> bool:
        """Returns whether it is bytes rather than text: by its name, as for TensorFlow Serving."""
        return self.dtype == "string" and self.name.endswith("_bytes")


@dataclass(frozen=True, kw_only=True)
class PredictionsManifest:
    """Facts about a directory of predictions.

    Attributes:
      inputs: rows of the source, or records of the dataset that are not excluded.
      predicted: inputs with predictions.
      quarantined: reason code to how many inputs have none for it.
      excluded: damaged records of the dataset that were left out, as all readers leave them out.
      outputs: the values that there are for each image.
      model_sha256: digest of the files of the model.
      options: the options that shaped the predictions.
      source_fingerprint: hex SHA-256 over ids and hashes of the image files.
      written_by: name and version of the writer.
      files: name to size and checksum of every file but the manifest and COMPLETED.
    """

    inputs: int
    predicted: int
    quarantined: Mapping[str, int]
    excluded: int = 0
    outputs: tuple[ModelOutput, ...]
    model_sha256: str
    options: Mapping[str, Any]
    source_fingerprint: str
    written_by: str
    files: Mapping[str, FileChecksum]

    def __post_init__(self) -> None:
        counted = self.predicted + sum(self.quarantined.values())
        if counted != self.inputs:
            raise ValueError(
                f"of {self.inputs:,} inputs, {self.predicted:,} have predictions and "
                f"{counted - self.predicted:,} are in the quarantine: some were lost or repeated"
            )

    def to_json(self) -> str:
        """The file's text; equal manifests give equal text."""
        return versioned_json.to_text(asdict(self), format_name=FORMAT, version=FORMAT_VERSION)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Inverse of `to_json`.

        Raises:
          ValueError: the text is not such a manifest, or of a newer format version.
        """
        values = versioned_json.from_text(
            text, format_name=FORMAT, newest_version=FORMAT_VERSION, repair=_REPAIR
        )
        return parse_as(cls, values, "the manifest")


def completed_text(manifest: str) -> str:
    """Text of COMPLETED beside this manifest."""
    digest = hashlib.sha256(manifest.encode()).hexdigest()
    return json.dumps({"format": FORMAT, "manifest_sha256": digest}) + "\n"
