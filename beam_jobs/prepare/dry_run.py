"""What preparing a chunk would find if every image were good, without reading one."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from beam_jobs.images.image import ImageOptions
from beam_jobs.prepare.prepared_chunk import PreparedChunk, Rejected
from beam_jobs.prepare.preparer import make_references, unique_rows
from beam_jobs.prepare.references import hash_words
from beam_jobs.storage.checksums import checksum
from schemas.receipt import Label


@dataclass(frozen=True, kw_only=True)
class ChunkRehearser:
    """Stands in for `ChunkPreparer` in a dry run; sizes are typical ones."""

    labels: tuple[Label, ...]
    image: ImageOptions
    seed: int

    def prepare(self, number: int, serialized_rows: Iterable[bytes]) -> PreparedChunk:
        """The chunk, with references to records that do not exist."""
        rows = list(unique_rows(serialized_rows))
        good = [row for row in rows if row.problem is None]
        references = make_references(
            good,
            keys=[hash_words(row.id, seed=self.seed) for row in good],
            locations=[(number, b"", 0, self.image.typical_bytes)] * len(good),
            labels=self.labels,
        )
        return PreparedChunk(
            number=number,
            references=references,
            ids=(),
            pixels=np.zeros((0, 2), np.uint64),
            truth=np.zeros(0, np.uint64),
            rejected=tuple(
                Rejected(
                    word=hash_words(row.id, seed=self.seed)[0],
                    file="",
                    offset=0,
                    length=0,
                    reason=row.problem[0],
                    id=row.id,
                    message=row.problem[1],
                )
                for row in rows
                if row.problem
            ),
            clipped_boxes=0,
            records_checksum=checksum(b""),
            fingerprint="",
            source_versions={},
        )
