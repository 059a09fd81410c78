"""Records of a dataset directory as rows: where they lie, instead of where an image lies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import apache_beam as beam

from beam_jobs.errors import BuildError
from beam_jobs.images.image_file import png_of_pixels
from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.sources.row import Row
from beam_jobs.storage import files
from beam_jobs.writing.output import read_excluded, read_manifest
from schemas.example import parse_example
from schemas.file_names import index_name
from schemas.index import RecordIndex
from schemas.manifest import Manifest
from schemas.receipt import LAYOUT, Feature
from schemas.tfrecord import CorruptRecordError, unframe

_OFFSET, _LENGTH, _SPLIT = "offset", "length", "split"
ShardTask = tuple[str, str, tuple[int, ...]]  # split, name of a shard, positions to leave out


@dataclass(frozen=True, kw_only=True)
class RecordSource:
    """Records of a version of a dataset; those that its readers leave out are left out here.

    Attributes:
      path: the dataset directory.
      version: the version.
      splits: the splits to read.
    """

    path: str
    version: int
    splits: tuple[str, ...]

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection[Row]:
        """Reads the rows of the records, in no order."""
        return (
            pipeline
            | "Dataset" >> beam.Create([self])
            | "Shards" >> beam.FlatMap(RecordSource.shards)  # ShardTask
            | beam.Reshuffle()
            | "Records" >> beam.FlatMap(self.rows)
        )

    def shards(self) -> Iterator[ShardTask]:
        """Yields the shards of the splits."""
        manifest = _manifest(self.path, self.version)
        excluded = read_excluded(self.path, manifest)
        for split in self.splits:
            for shard in manifest.splits[split].shards:
                yield split, shard.name, excluded.positions(shard.name)

    def rows(self, task: ShardTask) -> Iterator[Row]:
        """Yields the rows of the records of a shard.

        Raises:
          BuildError: the index of the shard is damaged.
        """
        split, name, excluded = task
        path = files.join(self.path, index_name(name))
        try:
            index = RecordIndex.from_bytes(files.read(path))
        except ValueError as error:
            raise BuildError(f"{path}: {error}; run python -m beam_jobs.verify") from error
        layouts = _manifest(self.path, self.version).vocabularies[LAYOUT]
        left_out = set(excluded)
        columns = zip(
            index.ids(),
            index.offset.tolist(),
            index.length.tolist(),
            index.categories[LAYOUT].tolist(),
            strict=True,
        )
        for position, (id_, offset, length, layout) in enumerate(columns):
            if position not in left_out:
                yield Row(
                    id=id_,
                    uri=files.join(self.path, name),
                    categories={LAYOUT: layouts[layout]},
                    labels={_SPLIT: split, _OFFSET: offset, _LENGTH: length},
                )

    def features(self) -> tuple[Feature, ...]:
        """Reads the features of the records."""
        return _manifest(self.path, self.version).features

    def excluded(self) -> int:
        """Counts the records that are left out."""
        return sum(len(positions) for _, _, positions in self.shards())


def is_record(row: Row) -> bool:
    """Returns whether a row is a record of a dataset rather than an image file."""
    return _OFFSET in row.labels


def split_of(row: Row) -> str | None:
    """Returns the split of a record, None for an image file."""
    return str(row.labels[_SPLIT]) if is_record(row) else None


def read_record(row: Row, features: Sequence[Feature]) -> bytes:
    """Reads the image of a record, as a JPEG or, for raw pixels, as a PNG file.

    Args:
      row: the record.
      features: those of its dataset.

    Raises:
      RejectionError: the record is damaged, or is another than the index says.
    """
    offset, length = int(row.labels[_OFFSET]), int(row.labels[_LENGTH])
    try:
        payload = unframe(files.read_range(row.uri, offset, length), offset)
        values = parse_example(features, payload)
        if values["image/source_id"] != [row.id.encode()]:
            raise ValueError("the record has another id than the index says")
    except (OSError, CorruptRecordError, ValueError) as error:
        raise RejectionError(
            Reason.RECORD_DAMAGED,
            f"{row.uri}, byte {offset}: {error}; run python -m beam_jobs.verify",
        ) from error
    [encoded], [stored_format] = values["image/encoded"], values["image/format"]
    if stored_format == b"jpeg":
        return bytes(encoded)
    shape = {name: values[f"image/{name}"][0] for name in ("height", "width", "channels")}
    return png_of_pixels(encoded, **shape)


@lru_cache(maxsize=1)
def _manifest(directory: str, version: int) -> Manifest:
    return read_manifest(directory, version)
