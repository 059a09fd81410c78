"""Preparation of a chunk: its images are read, decoded and encoded once, into staging files.

A staging file is named by the digest of what made it. A retry writes the same bytes, and a build
that was interrupted finds the chunks it had finished.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import PIL
import xxhash

from beam_jobs.errors import BuildError
from beam_jobs.images.image import HEIF_VERSION, ImageOptions, StoredImage, store_image
from beam_jobs.images.process import WALL_SECONDS, ImageProcess
from beam_jobs.images.watchdog import ImageWatchdog
from beam_jobs.prepare.known import Key, Known
from beam_jobs.prepare.prepared_chunk import PreparedChunk, Rejected
from beam_jobs.prepare.references import (
    LOCATION,
    References,
    encode_values,
    hash_words,
    labels_hash,
)
from beam_jobs.prepare.source_versions import MISSING, UNKNOWN, are_current, source_versions
from beam_jobs.prepare.staging import Staging
from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.sources.row import Box, Row
from beam_jobs.storage import files
from beam_jobs.storage.checksums import ChecksumReader, RunningChecksum
from schemas import __version__
from schemas.example import encode_example
from schemas.quarantine import REJECTED_FEATURES
from schemas.receipt import (
    Feature,
    Label,
    categories,
    id_feature,
    labels_features,
    receipt_features,
)
from schemas.tfrecord import CorruptRecordError, frame

_NOTHING: Known = MappingProxyType({})


def staged_features(labels: Sequence[Label]) -> tuple[Feature, ...]:
    """Features of a staged record: all but the category ids, which are not known yet."""
    ids = {id_feature(name) for name in categories(labels)}
    return tuple(feature for feature in receipt_features(labels) if feature.name not in ids)


@dataclass(frozen=True, kw_only=True)
class ChunkPreparer:
    """Prepares chunks into a staging directory.

    Attributes:
      staging: where the staging files go.
      labels: the labels that the user declared.
      image: how images are prepared.
      seed: seeds the hash of the ids.
    """

    staging: Staging
    labels: tuple[Label, ...]
    image: ImageOptions
    seed: int

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
        digest = self._digest(lines, known)
        sidecar = self.staging.sidecar(number, digest)
        records = self.staging.records(number, digest)
        if chunk := _prepared_earlier(sidecar, records):
            return chunk
        begun = self.staging.begun(number, digest)
        # A worker began this chunk and did not finish it: one of its images may have ended it.
        died = files.exists(begun) and not files.exists(sidecar)
        # A kill may come between any two files: first the note that the chunk was begun, then its
        # records, last the sidecar with their checksum, without which a chunk is not prepared.
        files.write(begun, b"without the .npz file beside it, this chunk was not finished\n")
        rows = list(unique_rows(lines))
        versions = source_versions(row.uri for row in rows if row.uri)  # before they are read
        with (
            files.create(records) as output,
            ImageProcess(self.image) as process,
            ImageWatchdog(WALL_SECONDS * self.image.max_seconds) as watchdog,
        ):
            writer = _ChunkWriter(
                self,
                number,
                digest,
                versions,
                known=known,
                process=process,
                watchdog=watchdog,
                apart=died,
            )
            for row in rows:
                output.write(writer.record(row))
        chunk = writer.finish()
        files.write(sidecar, chunk.to_bytes())
        return chunk

    def _digest(self, lines: Sequence[bytes], known: Known) -> bytes:
        made_by = [__version__, PIL.__version__, HEIF_VERSION, asdict(self.image), self.seed]
        made_by.append([asdict(label) for label in self.labels])
        if known:
            made_by.append(sorted(known.items()))
        digest = hashlib.sha256(json.dumps(made_by).encode())
        for line in lines:
            # With its length in front, no line can pass for two: "ab" is not "a", "b".
            digest.update(len(line).to_bytes(8, "little") + line)
        return digest.digest()[:16]


def _prepared_earlier(sidecar: str, records: str) -> PreparedChunk | None:
    """Returns the chunk of two files, None if one is missing or damaged or a source has changed."""
    try:
        chunk = PreparedChunk.from_bytes(files.read(sidecar))
        if not are_current(chunk.source_versions):
            return None
        return chunk if ChecksumReader(records).finish() == chunk.records_checksum else None
    except (FileNotFoundError, CorruptRecordError):
        return None


def make_references(
    rows: Sequence[Row],
    *,
    keys: Sequence[tuple[int, int]],
    locations: Sequence[tuple[int, bytes, int, int]],
    labels: Sequence[Label],
) -> References:
    """Returns references to the records of rows; a location is (chunk, digest, offset, length)."""
    return References(
        key=np.array(keys, np.uint64).reshape(-1, 2),
        group=np.array([hash_words(r.group)[0] if r.group else 0 for r in rows], np.uint64),
        location=np.array(locations, LOCATION),
        categories={
            name: encode_values([row.categories[name] for row in rows])
            for name in categories(labels)
        },
    )


class _ChunkWriter:
    """Collects the facts about a chunk's records while they are written one after the other."""

    def __init__(
        self,
        preparer: ChunkPreparer,
        number: int,
        digest: bytes,
        source_versions: dict[str, str],
        *,
        known: Known,
        process: ImageProcess,
        watchdog: ImageWatchdog,
        apart: bool,
    ) -> None:
        self._preparer = preparer
        self._process = process
        self._watchdog = watchdog
        self._apart = apart
        self._features = staged_features(preparer.labels)
        self._labels_features = labels_features(preparer.labels)
        self._number = number
        self._digest = digest
        self._end = 0
        self._checksum = RunningChecksum()
        self._accepted: list[Row] = []
        self._keys: list[tuple[int, int]] = []
        self._locations: list[tuple[int, bytes, int, int]] = []
        self._pixels: list[tuple[int, int]] = []
        self._labels_hash: list[int] = []
        self._rejected: list[Rejected] = []
        self._known = known
        self._found_known = 0
        self._clipped_boxes = 0
        self._fingerprint = hashlib.sha256()
        self._source_versions = source_versions

    def record(self, row: Row) -> bytes:
        """Prepares a row, and returns its framed record, accepted or rejected."""
        framed = self._framed(row)
        self._end += len(framed)
        self._checksum.update(framed)
        return framed

    def _framed(self, row: Row) -> bytes:
        data = b""
        offset = self._end
        try:
            try:
                data = self._read(row)
            finally:  # of a rejected row, too, the image's bytes are kept
                self._fingerprint.update(row.id.encode() + b"\0" + xxhash.xxh3_128_digest(data))
            if row.problem:
                raise RejectionError(Reason(row.problem[0]), row.problem[1])
            image = self._stored(data, row)
            values = _values(row, image)
            key = hash_words(row.id, seed=self._preparer.seed)
            # 128 bits, as two words for NumPy.
            pixels = (image.pixels_hash >> 64, image.pixels_hash & 0xFFFFFFFFFFFFFFFF)
            labels = labels_hash(self._labels_features, values)
            if key in self._known:
                _check_known(row, self._known[key], (pixels, labels))
                self._found_known += 1
                return b""
        except RejectionError as error:
            framed = frame(_rejected_example(row, data, error))
            self._rejected.append(
                Rejected(
                    id_hash=hash_words(row.id, seed=self._preparer.seed)[0],
                    file=self._preparer.staging.records(self._number, self._digest),
                    offset=offset,
                    length=len(framed),
                    reason=error.reason.value,
                    id=row.id,
                    message=error.message,
                )
            )
            return framed
        framed = frame(encode_example(self._features, values))
        self._labels_hash.append(labels)
        self._clipped_boxes += image.clipped_boxes
        self._accepted.append(row)
        self._keys.append(key)
        self._locations.append((self._number, self._digest, offset, len(framed)))
        self._pixels.append(pixels)
        return framed

    def _read(self, row: Row) -> bytes:
        if not row.uri:
            return b""
        limit = self._preparer.image.max_input_bytes
        try:
            # One byte more than allowed tells that a file is too large, however large it is.
            data = files.read_range(row.uri, 0, limit + 1)
        except OSError as error:
            if row.problem:
                return b""
            missing = isinstance(error, FileNotFoundError)
            reason = Reason.FILE_MISSING if missing else Reason.UNREADABLE
            raise RejectionError(reason, str(error)) from error
        if self._source_versions[row.uri] == MISSING:  # it has come meanwhile
            self._source_versions[row.uri] = UNKNOWN
        if len(data) > limit and row.problem:
            return b""
        if len(data) > limit:
            raise RejectionError(
                Reason.FILE_TOO_LARGE,
                f"{row.uri} is larger than {limit} bytes and was not kept: raise --max-input-mb",
            )
        return data

    def _stored(self, data: bytes, row: Row) -> StoredImage:
        try:
            if self._apart:
                return self._store_apart(data, row.boxes)
            self._watchdog.begin(f"{row.uri} (id {row.id!r})")
            return store_image(data, row.boxes, self._preparer.image, large=self._store_apart)
        except (RejectionError, BuildError):
            raise
        except MemoryError as error:  # a lack of memory is not the image's fault
            raise BuildError(
                f"this machine has too little memory to prepare {row.uri} (id {row.id!r}): give it "
                "more, or run fewer workers, and run the same command again; an image for which "
                "there is still too little is then rejected"
            ) from error
        except Exception as error:  # one image in ten million must not end the job
            raise RejectionError(Reason.FAILED, f"preparing failed: {error!r}") from error
        finally:
            self._watchdog.end()

    def _store_apart(self, data: bytes, boxes: Sequence[Box]) -> StoredImage:
        self._watchdog.end()  # the process has limits of its own
        return self._process.store_image(data, boxes)

    def finish(self) -> PreparedChunk:
        references = make_references(
            self._accepted,
            keys=self._keys,
            locations=self._locations,
            labels=self._preparer.labels,
        )
        return PreparedChunk(
            number=self._number,
            references=references,
            ids=tuple(row.id for row in self._accepted),
            pixels=np.array(self._pixels, np.uint64).reshape(-1, 2),
            labels_hash=np.array(self._labels_hash, np.uint64),
            rejected=tuple(self._rejected),
            known=self._found_known,
            clipped_boxes=self._clipped_boxes,
            records_checksum=self._checksum.result(),
            fingerprint=self._fingerprint.hexdigest(),
            source_versions=self._source_versions,
        )


def _check_known(row: Row, old: tuple[Key, int], new: tuple[Key, int]) -> None:
    """Raises RejectionError if a receipt's id is in the dataset, but not with this receipt."""
    if old != new:
        other = "another image" if old[0] != new[0] else "other labels or boxes"
        raise RejectionError(
            Reason.DUPLICATE_ID,
            f"id {row.id!r} is in the dataset already, with {other}: give every receipt its own id",
        )


def unique_rows(serialized_rows: Iterable[bytes]) -> Iterator[Row]:
    """Yields rows in a fixed order; of rows with the same id, all but the first are rejected.

    A row that is rejected already comes last among them, so it takes the id from no other row.
    """
    rows = [(Row.from_bytes(line), line) for line in serialized_rows]
    # The line, too, for rows that differ in neither: the first must be the same on any run.
    rows.sort(key=lambda pair: (pair[0].id, pair[0].problem is not None, pair[1]))
    seen: dict[str, str] = {}
    for row, _ in rows:
        if row.id in seen and row.problem is None:
            message = f"id {row.id!r} is taken by {seen[row.id]}: give every receipt its own id"
            yield replace(row, problem=(Reason.DUPLICATE_ID, message))
        else:
            yield row
        seen.setdefault(row.id, row.uri)


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


def _rejected_example(row: Row, data: bytes, error: RejectionError) -> bytes:
    return encode_example(
        REJECTED_FEATURES,
        {
            "id": row.id,
            "uri": row.uri,
            "reason": error.reason.value,
            "message": error.message,
            "source": row.source or row.to_bytes().decode(),
            "bytes": data,
        },
    )
