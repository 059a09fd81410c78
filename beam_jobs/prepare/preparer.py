"""Preparation of a chunk: its images are read, decoded and encoded once, into staging files."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from beam_jobs.images.image import DECODER_VERSIONS, ImageOptions, StoredImage, store_image
from beam_jobs.layouts.descriptors import Describer, Method
from beam_jobs.models.model import tensorflow_version
from beam_jobs.near_duplicates.fingerprinter import Fingerprinter
from beam_jobs.near_duplicates.perceptual_hash import HASH_VERSION
from beam_jobs.prepare.chunk_writer import ChunkTask, ChunkWriter, digest_of, write_chunk
from beam_jobs.prepare.known import Key, Known
from beam_jobs.prepare.prepared_chunk import PreparedChunk
from beam_jobs.prepare.references import labels_hash
from beam_jobs.prepare.staging import Staging
from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.shown import shown
from beam_jobs.sources.row import Row
from schemas import __version__
from schemas.example import encode_example
from schemas.fingerprints import FINGERPRINTS_VERSION
from schemas.receipt import (
    LAYOUT,
    Feature,
    Label,
    categories,
    labels_features,
    made_features,
    receipt_features,
)

_NOTHING: Known = MappingProxyType({})


def staged_features(labels: Sequence[Label], *, makes_layouts: bool) -> tuple[Feature, ...]:
    """Features of a staged record: all but those that are not known yet."""
    made = made_features(labels, makes_layouts=makes_layouts)
    return tuple(feature for feature in receipt_features(labels) if feature not in made)


@dataclass(frozen=True, kw_only=True)
class ChunkPreparer:
    """Prepares chunks into a staging directory.

    Attributes:
      staging: where the staging files go.
      labels: the labels that the user declared.
      image: how images are prepared.
      seed: seeds the hash of the ids.
      method: how layouts are found, None where they are not.
      makes_layouts: whether records get their layouts later, see `BuildOptions`.
      takes_fingerprints: whether near-duplicates are looked for.
      compares_images: whether they are looked for by images, too.
    """

    staging: Staging
    labels: tuple[Label, ...]
    image: ImageOptions
    seed: int
    method: Method | None = None
    makes_layouts: bool = False
    takes_fingerprints: bool = False
    compares_images: bool = False

    def prepare(
        self, number: int, serialized_rows: Iterable[bytes], known: Known = _NOTHING
    ) -> PreparedChunk:
        """Prepares one chunk, or returns the one that an earlier run has prepared.

        Args:
          number: the chunk.
          serialized_rows: its rows.
          known: those of their ids that the dataset has already.
        """
        lines = sorted(serialized_rows)
        return write_chunk(
            lines,
            staging=self.staging,
            number=number,
            digest=self._digest(lines, known),
            image=self.image,
            seed=self.seed,
            make_writer=lambda task: _RecordWriter(task, self, known),
        )

    def _digest(self, lines: Sequence[bytes], known: Known) -> bytes:
        made_by = [__version__, *DECODER_VERSIONS, asdict(self.image), self.seed]
        made_by.append([asdict(label) for label in self.labels])
        if known:
            made_by.append(sorted(known.items()))
        if method := self.method:
            made_by.append([method.layout_from, method.version])
            if method.model:
                made_by.append(tensorflow_version())
        elif self.makes_layouts:
            made_by.append("makes layouts")
        if self.takes_fingerprints:
            made_by.append(["fingerprints", FINGERPRINTS_VERSION])
        if self.compares_images:
            made_by.append(["images", HASH_VERSION])
        return digest_of(json.dumps(made_by), lines)


class _RecordWriter(ChunkWriter):
    """Makes the records of a dataset, one after the other."""

    def __init__(self, task: ChunkTask, preparer: ChunkPreparer, known: Known) -> None:
        super().__init__(task)
        labels, makes_layouts = preparer.labels, preparer.makes_layouts
        self._describer = Describer(preparer.method)
        self._takes_fingerprints = preparer.takes_fingerprints
        self._fingerprinter = Fingerprinter(compares_images=preparer.compares_images)
        self._makes_layouts = makes_layouts
        self._features = staged_features(labels, makes_layouts=makes_layouts)
        self._labels_features = labels_features(labels, makes_layouts=makes_layouts)
        self._categories = categories(labels)
        self._pixels: list[tuple[int, int]] = []
        self._labels_hash: list[int] = []
        self._known = known
        self._found_known = 0
        self._clipped_boxes = 0

    def records(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """Prepares rows; yields a framed record of each, accepted or rejected."""
        return map(self._record, rows)

    def _record(self, row: Row) -> bytes:
        data = b""
        try:
            try:
                data = self.read(row)
            finally:  # of a rejected row, too, the image's bytes are kept
                self.add_to_fingerprint(row, data)
            if row.problem:
                raise RejectionError(Reason(row.problem[0]), row.problem[1])
            image = self._stored(data, row)
            values = _values(row, image)
            if self._makes_layouts:
                del values[f"receipt/{LAYOUT}"]
            # 128 bits, as two words for NumPy.
            pixels = (image.pixels_hash >> 64, image.pixels_hash & 0xFFFFFFFFFFFFFFFF)
            labels = labels_hash(self._labels_features, values)
            key = self.key(row)
            if key in self._known:
                _check_known(row, self._known[key], (pixels, labels))
                self._found_known += 1
                return b""
        except RejectionError as error:
            return self.reject(row, data, error)
        self._labels_hash.append(labels)
        self._clipped_boxes += image.clipped_boxes
        self._pixels.append(pixels)
        self._describer.add(row, image)
        if self._takes_fingerprints:
            self._fingerprinter.add((box[4] for box in row.boxes), image.open)
        return self.accept(row, encode_example(self._features, values))

    def _stored(self, data: bytes, row: Row) -> StoredImage:
        with self.guard(row):
            if self.task.apart:
                return self.store_apart(data, row.boxes)
            return store_image(data, row.boxes, self.task.image, large=self.store_apart)

    def chunk(self) -> PreparedChunk:
        """Returns the facts about the chunk."""
        return self.facts(
            categories=self._categories,
            pixels=np.array(self._pixels, np.uint64).reshape(-1, 2),
            labels_hash=np.array(self._labels_hash, np.uint64),
            known=self._found_known,
            clipped_boxes=self._clipped_boxes,
            descriptors=self._describer.descriptors(),
            fingerprints=self._fingerprinter.fingerprints(),
        )


def _check_known(row: Row, old: tuple[Key, int], new: tuple[Key, int]) -> None:
    """Raises RejectionError if a receipt's id is in the dataset, but not with this receipt."""
    if old != new:
        other = "another image" if old[0] != new[0] else "other labels or boxes"
        raise RejectionError(
            Reason.DUPLICATE_ID,
            f"id {shown(row.id)} is in the dataset already, with {other}: give every receipt its "
            "own id",
        )


def _values(row: Row, image: StoredImage) -> dict[str, Any]:
    values: dict[str, Any] = {
        "image/encoded": image.encoded,
        "image/format": image.format,
        "image/height": image.height,
        "image/width": image.width,
        "image/channels": image.channels,
        "image/source_id": row.id,
        "image/key/sha256": hashlib.sha256(image.encoded).hexdigest(),
        "image/key/pixels": f"{image.pixels_hash:032x}",
        "image/object/text": [box[4] for box in image.boxes],
        "receipt/group": row.group,
    }
    for column, side in enumerate(("xmin", "ymin", "xmax", "ymax")):
        values[f"image/object/bbox/{side}"] = [box[column] for box in image.boxes]
    for name, value in {**row.categories, **row.labels}.items():
        values[f"receipt/{name}"] = value
    return values
