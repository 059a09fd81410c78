"""Dry run: prepares chunks as if every image were accepted, without reading one."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from beam_jobs.images.image import ImageOptions
from beam_jobs.layouts.descriptors import Describer, Method
from beam_jobs.near_duplicates.fingerprinter import Fingerprinter
from beam_jobs.prepare.known import Known
from beam_jobs.prepare.prepared_chunk import PreparedChunk, Rejected
from beam_jobs.prepare.references import hash_words, make_references
from beam_jobs.prepare.repeated_ids import unique_rows
from beam_jobs.storage.checksums import checksum
from schemas.receipt import Label, categories


@dataclass(frozen=True, kw_only=True)
class DryRunPreparer:
    """Takes the place of `ChunkPreparer` in a dry run; sizes of images are typical ones."""

    labels: tuple[Label, ...]
    image: ImageOptions
    seed: int
    method: Method | None = None
    takes_fingerprints: bool = False

    def prepare(self, number: int, serialized_rows: Iterable[bytes], known: Known) -> PreparedChunk:
        """Returns the chunk, with references to records that do not exist.

        Inputs with a known id are taken to be the receipts that the dataset has.
        """
        rows = list(unique_rows(serialized_rows))
        wanted = [row for row in rows if row.problem is None]
        accepted = [row for row in wanted if hash_words(row.id, seed=self.seed) not in known]
        describer = Describer(self.method)
        fingerprinter = Fingerprinter(compares_images=False)
        for row in accepted:
            describer.add(row)
            if self.takes_fingerprints:
                fingerprinter.add(box[4] for box in row.boxes)
        references = make_references(
            accepted,
            keys=[hash_words(row.id, seed=self.seed) for row in accepted],
            # No record exists; of a location, the plan uses the length only, for the number of
            # shards.
            locations=[(number, b"", 0, self.image.typical_bytes)] * len(accepted),
            categories=categories(self.labels),
        )
        return PreparedChunk(
            number=number,
            references=references,
            ids=tuple(row.id for row in accepted),
            # Without pixels nothing is a duplicate.
            pixels=np.zeros((0, 2), np.uint64),
            labels_hash=np.zeros(0, np.uint64),
            descriptors=describer.descriptors(),
            fingerprints=fingerprinter.fingerprints(),
            rejected=tuple(
                Rejected(
                    id_hash=hash_words(row.id, seed=self.seed)[0],
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
            known=len(wanted) - len(accepted),
            clipped_boxes=0,
            records_checksum=checksum(b""),
            fingerprint="",
            source_versions={},
        )
