"""Chunks on their way into staging files, whatever is made of their rows.

A staging file is named by the digest of what made it. A retry writes the same bytes, and a job that
was interrupted finds the chunks it had finished.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from beam_jobs.errors import BuildError
from beam_jobs.images.image import ImageOptions, StoredImage
from beam_jobs.images.process import WALL_SECONDS, ImageProcess
from beam_jobs.images.watchdog import ImageWatchdog
from beam_jobs.prepare.prepared_chunk import PreparedChunk, Rejected
from beam_jobs.prepare.references import hash_words, make_references
from beam_jobs.prepare.repeated_ids import unique_rows
from beam_jobs.prepare.source_versions import (
    MISSING,
    UNKNOWN,
    are_current,
    in_existing_forms,
    source_versions,
)
from beam_jobs.prepare.staging import Staging
from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.shown import shortened, shown
from beam_jobs.sources.row import MAX_SOURCE_CHARACTERS, Box, Row
from beam_jobs.storage import files
from beam_jobs.storage.checksums import ChecksumReader, RunningChecksum
from schemas.example import encode_example
from schemas.fingerprints import Fingerprints
from schemas.layout_centroids import Descriptors
from schemas.quarantine import REJECTED_FEATURES
from schemas.tfrecord import CorruptRecordError, frame

HashArray = npt.NDArray[np.uint64]
_NO_PIXELS, _NO_HASHES = np.zeros((0, 2), np.uint64), np.zeros(0, np.uint64)
_NO_DESCRIPTORS = np.zeros((0, 0), np.int8)


@dataclass(frozen=True, kw_only=True)
class ChunkTask:
    """A chunk that is being written, and what guards its worker against its images.

    Attributes:
      staging: where the staging files go.
      number: the chunk.
      digest: digest of all that makes it, 16 bytes.
      image: limits of images, and how they are prepared.
      seed: seeds the hash of the ids.
      source_versions: uri to the version of each source file.
      process: prepares images in a process of its own.
      watchdog: ends this process if an image takes too long.
      apart: whether a worker began this chunk and did not finish it: one of its images may have
        ended it.
    """

    staging: Staging
    number: int
    digest: bytes
    image: ImageOptions
    seed: int
    source_versions: dict[str, str]
    process: ImageProcess
    watchdog: ImageWatchdog
    apart: bool


class ChunkWriter(ABC):
    """Makes the framed records of a chunk, accepted and rejected, and collects facts about them."""

    def __init__(self, task: ChunkTask) -> None:
        self.task = task
        self._end = 0
        self._checksum = RunningChecksum()
        self._accepted: list[Row] = []
        self._keys: list[tuple[int, int]] = []
        self._locations: list[tuple[int, bytes, int, int]] = []
        self._rejected: list[Rejected] = []
        self._fingerprint = hashlib.sha256()

    @abstractmethod
    def records(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """Yields framed records of `accept` and `reject`, in the order in which these made them."""

    def accept(self, row: Row, record: bytes) -> bytes:
        """Returns the framed record of a row, and notes where it lies."""
        framed = frame(record)
        self._accepted.append(row)
        self._keys.append(self.key(row))
        self._locations.append((self.task.number, self.task.digest, self._end, len(framed)))
        return self._append(framed)

    def reject(self, row: Row, data: bytes, error: RejectionError) -> bytes:
        """Returns the framed record of a row for the quarantine; `data` is its image file."""
        framed = frame(_rejected_example(row, data, error))
        self._rejected.append(
            Rejected(
                id_hash=self.key(row)[0],
                file=self.task.staging.records(self.task.number, self.task.digest),
                offset=self._end,
                length=len(framed),
                reason=error.reason.value,
                id=row.id,
                message=error.message,
            )
        )
        return self._append(framed)

    def _append(self, framed: bytes) -> bytes:
        self._end += len(framed)
        self._checksum.update(framed)
        return framed

    def key(self, row: Row) -> tuple[int, int]:
        """Hashes the id of a row, which decides on the order of the records."""
        return hash_words(row.id, seed=self.task.seed)

    def add_to_fingerprint(self, row: Row, data: bytes) -> None:
        """Counts the bytes of an image, none where it can't be read, among those of the source."""
        self._fingerprint.update(row.id.encode() + b"\0" + xxhash.xxh3_128_digest(data))

    def read(self, row: Row) -> bytes:
        """Reads the image file of a row.

        Raises:
          RejectionError: there is no such file, or it is too large.
        """
        if not row.uri:
            return b""
        limit = self.task.image.max_input_bytes
        try:
            # One byte more than allowed tells that a file is too large, however large it is.
            data = files.read_range(row.uri, 0, limit + 1)
        except OSError as error:
            if row.problem:
                return b""
            missing = isinstance(error, FileNotFoundError)
            reason = Reason.FILE_MISSING if missing else Reason.UNREADABLE
            raise RejectionError(reason, str(error)) from error
        self.was_read(row.uri)
        if len(data) > limit and row.problem:
            return b""
        if len(data) > limit:
            raise RejectionError(
                Reason.FILE_TOO_LARGE,
                f"{row.uri} is larger than {limit} bytes and was not kept: raise --max-input-mb",
            )
        return data

    @contextmanager
    def guard(self, row: Row) -> Iterator[None]:
        """Guards the preparation of a row's image, unless that is done in another process.

        Raises:
          RejectionError: preparing fails with an error that is not foreseen.
          BuildError: this machine has too little memory.
        """
        name = f"{row.uri} (id {shown(row.id)})"
        try:
            if not self.task.apart:
                self.task.watchdog.begin(name)
            yield
        except (RejectionError, BuildError):
            raise
        except MemoryError as error:  # a lack of memory is not the image's fault
            raise BuildError(
                f"this machine has too little memory to prepare {name}: give it more, or run fewer "
                "workers, and run the same command again; an image for which there is still too "
                "little is then rejected"
            ) from error
        except Exception as error:  # one image in ten million must not end the job
            raise RejectionError(Reason.FAILED, f"preparing failed: {error!r}") from error
        finally:
            self.task.watchdog.end()

    def store_apart(self, data: bytes, boxes: Sequence[Box]) -> StoredImage:
        """Prepares an image in a process of its own, which has limits of its own."""
        self.task.watchdog.end()
        return self.task.process.store_image(data, boxes)

    def was_read(self, uri: str) -> None:
        """Notes that there is a file of this name."""
        if self.task.source_versions[uri] == MISSING:  # it has come meanwhile
            self.task.source_versions[uri] = UNKNOWN

    @abstractmethod
    def chunk(self) -> PreparedChunk:
        """Returns the facts about the chunk, once all its records are made."""

    def facts(
        self,
        *,
        categories: Sequence[str] = (),
        pixels: HashArray = _NO_PIXELS,
        labels_hash: HashArray = _NO_HASHES,
        known: int = 0,
        clipped_boxes: int = 0,
        descriptors: Descriptors = _NO_DESCRIPTORS,
        fingerprints: Fingerprints | None = None,
    ) -> PreparedChunk:
        """Returns the facts about the chunk, once all its records are made.

        Args:
          categories: the categories that its references have.
          pixels: as in `PreparedChunk`, and so are the others.
          labels_hash: none, as the pixels, where no duplicates are looked for.
          known: rows of which no record was made, as the dataset has them.
          clipped_boxes: boxes that reached beyond their image.
          descriptors: of the records, where layouts are found by them.
          fingerprints: of the records, where near-duplicates are looked for.
        """
        return PreparedChunk(
            number=self.task.number,
            references=make_references(
                self._accepted, keys=self._keys, locations=self._locations, categories=categories
            ),
            ids=tuple(row.id for row in self._accepted),
            pixels=pixels,
            labels_hash=labels_hash,
            descriptors=descriptors,
            fingerprints=fingerprints or Fingerprints.of([]),
            rejected=tuple(self._rejected),
            known=known,
            clipped_boxes=clipped_boxes,
            records_checksum=self._checksum.result(),
            fingerprint=self._fingerprint.hexdigest(),
            source_versions=self.task.source_versions,
        )


def write_chunk(
    lines: Sequence[bytes],
    *,
    staging: Staging,
    number: int,
    digest: bytes,
    image: ImageOptions,
    seed: int,
    make_writer: Callable[[ChunkTask], ChunkWriter],
) -> PreparedChunk:
    """Writes a chunk, or returns the one that an earlier run has written.

    Args:
      lines: its rows, serialized.
      staging: where the staging files go.
      number: the chunk.
      digest: digest of all that makes it, 16 bytes.
      image: limits of images, and how they are prepared.
      seed: seeds the hash of the ids.
      make_writer: makes its records.
    """
    sidecar = staging.sidecar(number, digest)
    records = staging.records(number, digest)
    if chunk := _written_earlier(sidecar, records):
        return chunk
    begun = staging.begun(number, digest)
    # A worker began this chunk and did not finish it: one of its images may have ended it.
    died = files.exists(begun) and not files.exists(sidecar)
    # A kill may come between any two files: first the note that the chunk was begun, then its
    # records, last the sidecar with their checksum, without which a chunk is not prepared.
    files.write(begun, b"without the .npz file beside it, this chunk was not finished\n")
    rows = list(unique_rows(lines))
    versions = source_versions(row.uri for row in rows if row.uri)  # before they are read
    rows, versions = in_existing_forms(rows, versions)
    with (
        files.create(records) as output,
        ImageProcess(image) as process,
        ImageWatchdog(WALL_SECONDS * image.max_seconds) as watchdog,
    ):
        writer = make_writer(
            ChunkTask(
                staging=staging,
                number=number,
                digest=digest,
                image=image,
                seed=seed,
                source_versions=versions,
                process=process,
                watchdog=watchdog,
                apart=died,
            )
        )
        for framed in writer.records(rows):
            output.write(framed)
    chunk = writer.chunk()
    files.write(sidecar, chunk.to_bytes())
    return chunk


def digest_of(made_by: str, lines: Sequence[bytes]) -> bytes:
    """Digest of what makes a chunk, 16 bytes: versions and options as text, and its rows."""
    digest = hashlib.sha256(made_by.encode())
    for line in lines:
        # With its length in front, no line can pass for two: "ab" is not "a", "b".
        digest.update(len(line).to_bytes(8, "little") + line)
    return digest.digest()[:16]


def _written_earlier(sidecar: str, records: str) -> PreparedChunk | None:
    """Returns the chunk of two files, None if one is missing or damaged or a source has changed."""
    try:
        chunk = PreparedChunk.from_bytes(files.read(sidecar))
        if not are_current(chunk.source_versions):
            return None
        return chunk if ChecksumReader(records).finish() == chunk.records_checksum else None
    except (FileNotFoundError, CorruptRecordError):
        return None


def _rejected_example(row: Row, data: bytes, error: RejectionError) -> bytes:
    return encode_example(
        REJECTED_FEATURES,
        {
            "id": row.id,
            "uri": row.uri,
            "reason": error.reason.value,
            "message": error.message,
            "source": row.source or shortened(row.to_bytes().decode(), MAX_SOURCE_CHARACTERS),
            "bytes": data,
        },
    )
