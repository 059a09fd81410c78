"""Files of predictions, as Parquet or as JSON lines, from the lines that were staged."""

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.errors import TRY_AGAIN, BuildError
from beam_jobs.prepare.references import References
from beam_jobs.prepare.staging import Staging
from beam_jobs.storage import files
from beam_jobs.storage.checksums import ChecksumReader
from schemas.manifest import FileChecksum
from schemas.predictions import FileFormat, ModelOutput, predictions_name
from schemas.receipt import LAYOUT
from schemas.tfrecord import CorruptRecordError, unframe

_GROUP_ROWS, _GROUP_BYTES = 1 << 16, 1 << 26  # of a row group; bytes of its lines


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A file of predictions that lies in the staging directory, ready to be published."""

    name: str
    rows: int
    checksum: FileChecksum


@dataclass(frozen=True, kw_only=True)
class PredictionWriter:
    """Writes files of predictions.

    Attributes:
      staging: where the lines were staged.
      directory: where the files go.
      format: their format.
      outputs: the values of the model.
      has_splits: whether the inputs are records, which have a split.
    """

    staging: Staging
    directory: str
    format: FileFormat
    outputs: tuple[ModelOutput, ...]
    has_splits: bool

    def write(self, number: int, count: int, buckets: Iterable[tuple[int, str]]) -> WrittenFile:
        """Writes a file: the buckets in their order, and in each the order of the ids' hashes.

        Args:
          number: the file.
          count: number of files.
          buckets: (bucket, path of its References), in no order.

        Raises:
          BuildError: a staged line is damaged.
        """
        name = predictions_name(number, count, self.format)
        path = files.join(self.directory, name)
        paths = [path for _, path in sorted(buckets)]
        with files.create(path) as output:
            lines = self._lines(paths)
            write = _write_parquet if self.format == "parquet" else _write_jsonl
            rows = write(output, lines, self.schema())
        return WrittenFile(name=name, rows=rows, checksum=ChecksumReader(path).finish())

    def schema(self) -> pa.Schema:
        """The columns: id, layout, split if there are any, and a structure of the values."""
        names = ["id", LAYOUT, *(["split"] if self.has_splits else [])]
        values = pa.struct([pa.field(one.name, _arrow_type(one)) for one in self.outputs])
        return pa.schema([*((name, pa.string()) for name in names), ("predictions", values)])

    def _lines(self, paths: Sequence[str]) -> Iterator[bytes]:
        for path in paths:
            references = References.from_bytes(files.read(path))  # sorted by the ids' hashes
            ranges = [
                (self.staging.records(chunk, digest), offset, length)
                for chunk, digest, offset, length in references.location.tolist()
            ]
            for (file, start, _), framed in zip(ranges, files.read_ranges(ranges), strict=True):
                try:
                    yield unframe(framed, start)
                except CorruptRecordError as error:
                    raise BuildError(f"{file}, byte {start}: {error}; {TRY_AGAIN}") from error


def _write_jsonl(output: BinaryIO, lines: Iterable[bytes], _: pa.Schema) -> int:
    rows = 0
    for line in lines:
        output.write(line + b"\n")
        rows += 1
    return rows


def _write_parquet(output: BinaryIO, lines: Iterable[bytes], schema: pa.Schema) -> int:
    fields = schema.field("predictions").type
    binary = {field.name for field in fields if _holds_bytes(field.type)}
    rows = 0
    with pq.ParquetWriter(output, schema, compression="zstd") as writer:
        for group in _groups(lines):
            values = [_with_bytes(orjson.loads(line), binary) for line in group]
            writer.write_table(pa.Table.from_pylist(values, schema), row_group_size=len(values))
            rows += len(values)
    return rows


def _groups(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    size_bytes = 0
    for line in lines:
        group.append(line)
        size_bytes += len(line)
        if len(group) == _GROUP_ROWS or size_bytes >= _GROUP_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def _arrow_type(output: ModelOutput) -> pa.DataType:
    names = {"string": "binary" if output.is_binary else "string", "float32": "float"}
    names["float64"] = "double"
    type_ = pa.type_for_alias(names.get(output.dtype, output.dtype))
    for side in reversed(output.shape):
        type_ = pa.list_(type_, side)  # -1 is a list of any length, to Arrow too
    return type_


def _holds_bytes(type_: pa.DataType) -> bool:
    """Returns whether values are bytes, or lists of them."""
    while pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        type_ = type_.value_type
    return bool(pa.types.is_binary(type_))


def _with_bytes(line: dict[str, Any], binary: set[str]) -> dict[str, Any]:
    """Decodes the values of a line that are bytes, in Base64 where they stand in JSON."""
    for name in binary:
        line["predictions"][name] = _bytes_of(line["predictions"][name])
    return line


def _bytes_of(value: Any) -> Any:
    return [_bytes_of(one) for one in value] if isinstance(value, list) else base64.b64decode(value)
