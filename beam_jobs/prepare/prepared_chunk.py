"""A prepared chunk: a staging file with its records, and a sidecar file with facts about them."""

import io
import json
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from beam_jobs.prepare.references import References
from schemas.fingerprints import Fingerprints
from schemas.layout_centroids import Descriptors
from schemas.manifest import FileChecksum
from schemas.tfrecord import frame, unframe


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """Reference to a rejected input: where its quarantine record lies, and why it is there."""

    id_hash: int  # first 64 bits
    file: str
    offset: int
    length: int
    reason: str
    id: str
    message: str


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedChunk:
    """One chunk whose images are prepared.

    Attributes:
      number: the chunk.
      references: its accepted records, n of them.
      ids: their ids.
      pixels: uint64 [n, 2], hash of the upright pixels.
      labels_hash: uint64 [n], hash of layout, group, labels and boxes.
      descriptors: int8 [n, size], by which layouts are found; [n, 0] where they are given.
      fingerprints: by which near-duplicates are found; none where these are not looked for.
      rejected: its rejected inputs.
      known: inputs that are in the dataset already, to which the others are appended.
      clipped_boxes: boxes that reached beyond their image.
      records_checksum: that of the file with its records.
      fingerprint: hex SHA-256 over ids and the XXH3 hashes of source bytes.
      source_versions: uri to the version of each source file, see `source_version`.
    """

    number: int
    references: References
    ids: tuple[str, ...]
    pixels: npt.NDArray[np.uint64]
    labels_hash: npt.NDArray[np.uint64]
    descriptors: Descriptors
    fingerprints: Fingerprints
    rejected: tuple[Rejected, ...]
    known: int
    clipped_boxes: int
    records_checksum: FileChecksum
    fingerprint: str
    source_versions: dict[str, str]

    @property
    def inputs(self) -> int:
        return len(self.references) + len(self.rejected) + self.known

    def to_bytes(self) -> bytes:
        """Contents of the sidecar file: an .npz in the frame of a record, which has checksums.

        The staging files of an interrupted build keep the names `truth` and `word` that they have.
        """
        text = {
            "number": self.number,
            "ids": self.ids,
            "rejected": [_staged_rejected(rejected) for rejected in self.rejected],
            "known": self.known,
            "clipped_boxes": self.clipped_boxes,
            "records_checksum": vars(self.records_checksum),
            "fingerprint": self.fingerprint,
            "source_versions": self.source_versions,
        }
        # All that is not a number goes into one array of JSON bytes: arrays of Python objects could
        # be read with pickle only, which runs what a file says.
        buffer = io.BytesIO()
        np.savez(
            buffer,
            text=np.frombuffer(json.dumps(text).encode(), np.uint8),
            pixels=self.pixels,
            truth=self.labels_hash,
            descriptors=self.descriptors,
            references=np.frombuffer(self.references.to_bytes(), np.uint8),
            **self.fingerprints.arrays(),
        )
        return frame(buffer.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`.

        Raises:
          CorruptRecordError: the file is damaged.
        """
        with np.load(io.BytesIO(unframe(data, 0)), allow_pickle=False) as arrays:
            text = json.loads(arrays["text"].tobytes())
            references = References.from_bytes(arrays["references"].tobytes())
            none = np.zeros((len(references), 0), np.int8)
            return cls(
                references=references,
                ids=tuple(text.pop("ids")),
                # The file of an older version has neither these nor fingerprints.
                descriptors=arrays.get("descriptors", none),
                fingerprints=(
                    Fingerprints.of_arrays(arrays)
                    if Fingerprints.are_in(arrays)
                    else Fingerprints.of([])
                ),
                pixels=arrays["pixels"],
                labels_hash=arrays["truth"],
                rejected=tuple(
                    Rejected(id_hash=values.pop("word"), **values)
                    for values in text.pop("rejected")
                ),
                records_checksum=FileChecksum(**text.pop("records_checksum")),
                **text,
            )


def _staged_rejected(rejected: Rejected) -> dict[str, Any]:
    values = dict(vars(rejected))
    return {"word": values.pop("id_hash"), **values}
