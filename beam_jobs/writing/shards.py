"""Shards: the records that were dealt to each, with their index."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt
from PIL import Image

from beam_jobs.errors import TRY_AGAIN, BuildError
from beam_jobs.images.image import open_stored
from beam_jobs.images.restart_rows import encode_again
from beam_jobs.near_duplicates.fingerprinter import Fingerprinter
from beam_jobs.prepare.lookups import make_lookup, record_hashes
from beam_jobs.prepare.preparer import staged_features
from beam_jobs.storage import files
from schemas.example import (
    decode_example,
    encode_example,
    extend_example,
    find_bytes,
    parse_example,
)
from schemas.file_names import (
    dali_index_name,
    index_name,
    lookup_name,
    shard_name,
    shard_summary_name,
)
from schemas.index import IndexRow, RecordIndex, dali_index
from schemas.lookup import RecordLookup
from schemas.manifest import Shard
from schemas.raw_pixels import align_pixels
from schemas.receipt import (
    LAYOUT,
    Label,
    categories,
    id_feature,
    labels_features,
    made_features,
    receipt_features,
)
from schemas.restart_rows import has_row_table
from schemas.statistics import RecordSummary
from schemas.summary_file import summary_text
from schemas.tfrecord import CorruptRecordError, frame, unframe
from schemas.vocabulary import Vocabulary

Vocabularies = Mapping[str, Vocabulary]


@dataclass(frozen=True, kw_only=True)
class WrittenShard:
    """A shard that lies in the staging directory, ready to be published."""

    split: str
    number: int
    shard: Shard


class RecordFiles(Protocol):
    """Files with the records that are dealt: prepared chunks (`Staging`), or shards."""

    def records(self, chunk: int, digest: bytes, /) -> str:
        """Path of the file that these fields of a LOCATION name."""


@dataclass(frozen=True, kw_only=True)
class ShardWriter:
    """Writes shards into `directory`.

    Attributes:
      record_files: where the records lie that `write` is given; None if it isn't called.
      directory: where shards and indexes go.
      labels: the labels that the user declared.
      seed: seeds the hash of the ids.
      first_numbers: split to the number of its first shard.
      complete: whether the records have the ids of their categories, and their layouts, already.
      replaces_layouts: whether such records get other layouts than they have.
      restart_rows: whether the JPEG files of such records get restart rows, see
        `schemas.restart_rows`.
      makes_layouts: whether staged records have no layouts, see `BuildOptions.makes_layouts`.
      takes_fingerprints: whether lookups hold that by which near-duplicates are found.
      compares_images: whether they are found by images, too.
    """

    record_files: RecordFiles | None = None
    directory: str
    labels: tuple[Label, ...]
    seed: int
    first_numbers: Mapping[str, int]
    complete: bool = False
    replaces_layouts: bool = False
    restart_rows: bool = False
    makes_layouts: bool = False
    takes_fingerprints: bool = False
    compares_images: bool = False

    def write(
        self,
        split: str,
        number: int,
        locations: npt.NDArray[Any],
        vocabularies: Vocabularies,
    ) -> tuple[WrittenShard, RecordIndex, RecordSummary]:
        """Writes a shard and the files beside it.

        Args:
          split: the shard's split.
          number: the shard's position among those that are written.
          locations: ORDERED_LOCATION of each record, in no order.
          vocabularies: category name to its vocabulary.

        Returns:
          The shard, its index and the statistics of its records.

        Raises:
          BuildError: a record is damaged.
        """
        # The order is a word of the hash of the id, so a worker that is tried again writes the same
        # bytes, in whatever order the locations come.
        ordered = np.sort(locations, order="order", kind="stable")
        return self.write_records(
            split,
            number,
            self._ranges(ordered["location"]),
            vocabularies,
            layouts=ordered["layout"].tolist(),
        )

    def write_records(
        self,
        split: str,
        number: int,
        ranges: Sequence[files.ByteRange],
        vocabularies: Vocabularies,
        layouts: Sequence[int] | None = None,
    ) -> tuple[WrittenShard, RecordIndex, RecordSummary]:
        """Writes a shard of the records that lie in these ranges, in their order; see `write`.

        The ids of their layouts are needed where the records lack them.
        """
        builder = _ShardBuilder(
            self.labels,
            vocabularies,
            seed=self.seed,
            complete=self.complete,
            replaces_layouts=self.replaces_layouts,
            restart_rows=self.restart_rows,
            makes_layouts=self.makes_layouts,
            fingerprinter=(
                Fingerprinter(compares_images=self.compares_images)
                if self.takes_fingerprints
                else None
            ),
        )
        of_layouts = [None] * len(ranges) if layouts is None else layouts
        name = shard_name(split, self.first_numbers[split] + number)
        # One record at a time: records lie scattered over the files of all chunks, and a whole
        # shard may be larger than a worker's memory.
        with files.create(files.join(self.directory, name)) as output:
            records = zip(ranges, files.read_ranges(ranges), of_layouts, strict=True)
            for (path, start, _), framed, layout in records:
                try:
                    payload = unframe(framed, start)
                except CorruptRecordError as error:
                    advice = "run python -m beam_jobs.verify" if self.complete else TRY_AGAIN
                    raise BuildError(f"{path}, byte {start}: {error}; {advice}") from error
                output.write(builder.add(payload, layout))
        index = RecordIndex.of_rows(builder.rows, categories=categories(self.labels))
        index_bytes, dali_bytes = index.to_bytes(), dali_index(index)
        lookup_bytes = builder.lookup().to_bytes()
        summary_bytes = summary_text({split: builder.summary}).encode()
        files.write(files.join(self.directory, lookup_name(name)), lookup_bytes)
        files.write(files.join(self.directory, shard_summary_name(name)), summary_bytes)
        files.write(files.join(self.directory, dali_index_name(name)), dali_bytes)
        files.write(files.join(self.directory, index_name(name)), index_bytes)
        shard = Shard(
            name=name,
            records=len(builder.rows),
            size_bytes=builder.size_bytes,
            crc32c=builder.crc32c,
            index_crc32c=google_crc32c.value(index_bytes),
            lookup_crc32c=google_crc32c.value(lookup_bytes),
            summary_crc32c=google_crc32c.value(summary_bytes),
            dali_index_crc32c=google_crc32c.value(dali_bytes),
        )
        written = WrittenShard(split=split, number=number, shard=shard)
        return written, index, builder.summary

    def _ranges(self, locations: npt.NDArray[Any]) -> list[tuple[str, int, int]]:
        """(path, offset, length) of each record."""
        if self.record_files is None:
            raise ValueError("a writer without record_files writes records by their ranges only")
        return [
            (self.record_files.records(chunk, digest), offset, length)
            for chunk, digest, offset, length in locations.tolist()
        ]


class _ShardBuilder:
    """Makes the records of one shard, and gathers its index rows, checksum and statistics.

    Attributes:
      rows: an index row for each record so far.
      summary: statistics of the records so far.
      size_bytes: bytes of the records so far, frames included.
    """

    def __init__(
        self,
        labels: Sequence[Label],
        vocabularies: Vocabularies,
        *,
        seed: int,
        complete: bool,
        replaces_layouts: bool,
        restart_rows: bool,
        makes_layouts: bool,
        fingerprinter: Fingerprinter | None,
    ) -> None:
        self.rows: list[IndexRow] = []
        self.summary = RecordSummary()
        self.size_bytes = 0
        self._crc = google_crc32c.Checksum()
        self._seed = seed
        self._labels_features = labels_features(labels, makes_layouts=makes_layouts)
        self._hashes: list[tuple[int, ...]] = []
        self._fingerprinter = fingerprinter
        self._vocabularies = vocabularies
        self._categories = categories(labels)
        self._staged_features = staged_features(labels, makes_layouts=makes_layouts)
        self._complete_features = receipt_features(labels)
        self._replaces_layouts = replaces_layouts
        self._restart_rows = restart_rows
        stays = complete and not replaces_layouts
        self._features = self._complete_features if stays else self._staged_features
        made = made_features(labels, makes_layouts=makes_layouts)
        self._added = () if stays else made
        self._gets_layout = makes_layouts and not stays

    def add(self, payload: bytes, layout: int | None = None) -> bytes:
        """Adds a record, and returns the framed record to be written.

        A staged record gets the ids of its categories here, and its layout where the build makes
        layouts: vocabularies are known only now. A complete record gets them anew where its layout
        is replaced.
        """
        if self._replaces_layouts or self._lacks_rows(payload):
            payload = self._rewrite(payload)
        values = parse_example(self._features, payload)
        if self._gets_layout:
            if layout is None:
                raise ValueError("a record without a layout needs the id of its layout")
            name = self._vocabularies[LAYOUT].values[layout]
            values[f"receipt/{LAYOUT}"] = [name.encode()]
        self._hashes.append(record_hashes(self._labels_features, values, seed=self._seed))
        if self._fingerprinter:
            lines = (text.decode() for text in values["image/object/text"])
            self._fingerprinter.add(lines, partial(_open, values))
        codes = {
            name: self._vocabularies[name].position(values[f"receipt/{name}"][0].decode())
            for name in self._categories
        }
        ids = {id_feature(name): code for name, code in codes.items()}
        made = {f"receipt/{LAYOUT}": values[f"receipt/{LAYOUT}"][0].decode(), **ids}
        if self._added:
            # They go behind the staged bytes, which need not be encoded again.
            added = {feature.name: made[feature.name] for feature in self._added}
            payload = extend_example(payload, self._added, added)
        if values["image/format"] == [b"raw"]:
            payload = align_pixels(payload)
        record = frame(payload)
        self.rows.append(
            IndexRow(
                id=values["image/source_id"][0].decode(),
                offset=self.size_bytes,
                length=len(record),
                height=values["image/height"][0],
                width=values["image/width"][0],
                channels=values["image/channels"][0],
                categories=codes,
            )
        )
        self.summary.add(values | {name: [code] for name, code in ids.items()})
        self._crc.update(record)
        self.size_bytes += len(record)
        return record

    def _lacks_rows(self, payload: bytes) -> bool:
        """Tells whether the JPEG file of a complete record is still to get restart rows."""
        if not self._restart_rows:
            return False
        return not has_row_table(payload[find_bytes(memoryview(payload), "image/encoded")])

    def _rewrite(self, payload: bytes) -> bytes:
        """Gives a complete record restart rows, and takes from it what `add` makes anew.

        Without its layout and ids, it is the record that a build of the inputs has staged.
        """
        values: dict[str, Any] = decode_example(self._complete_features, payload)
        if self._lacks_rows(payload):
            file = encode_again(values["image/encoded"])
            values["image/encoded"] = file
            values["image/key/sha256"] = hashlib.sha256(file).hexdigest()
        return encode_example(
            self._features, {feature.name: values[feature.name] for feature in self._features}
        )

    def lookup(self) -> RecordLookup:
        """Makes the lookup of the records so far."""
        taken = self._fingerprinter
        return make_lookup(self._hashes, taken.fingerprints() if taken else None)

    @property
    def crc32c(self) -> int:
        """CRC32C of the records so far."""
        # google_crc32c gives its digest in big-endian order.
        return int.from_bytes(self._crc.digest(), "big")


def _open(values: Mapping[str, Any]) -> Image.Image:
    """Opens the image of a parsed record."""
    shape = tuple(values[f"image/{side}"][0] for side in ("height", "width", "channels"))
    is_raw = values["image/format"][0] == b"raw"
    return open_stored(values["image/encoded"][0], shape if is_raw else None)
