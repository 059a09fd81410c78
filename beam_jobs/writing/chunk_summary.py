"""Numbers of a prepared chunk, which are all that publishing needs of it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from beam_jobs.prepare.prepared_chunk import PreparedChunk


@dataclass(frozen=True, kw_only=True)
class ChunkSummary:
    """The numbers of a chunk that go into the manifest."""

    number: int
    inputs: int
    quarantined: Mapping[str, int]
    known: int
    clipped_boxes: int
    fingerprint: str

    @classmethod
    def of(cls, chunk: PreparedChunk) -> Self:
        """Summary of a prepared chunk."""
        return cls(
            number=chunk.number,
            inputs=chunk.inputs,
            quarantined=dict(Counter(rejected.reason for rejected in chunk.rejected)),
            known=chunk.known,
            clipped_boxes=chunk.clipped_boxes,
            fingerprint=chunk.fingerprint,
        )
