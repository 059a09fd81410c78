"""Sources as the tests make and read them."""

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import FileMetadata
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from beam_jobs.sources.row import Row
from beam_jobs.sources.source import InputFormat, Source
from schemas.receipt import Label

LABELS = (Label(name="total", type="float"), Label(name="currency", type="category"))


def source(format_: InputFormat, path: Path | str = "/data", **options: Any) -> Source:
    """Returns a source whose columns have their usual names."""
    defaults: dict[str, Any] = {"columns": {}, "image_root": "/images"}
    return Source(path=str(path), format=format_, **(defaults | options))


def write_table(path: Path, text: str | bytes) -> FileMetadata:
    """Writes a table, compressed if its name says so; returns what a listing says of it."""
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return FileMetadata(str(path), 0)


def outline(rows: Iterable[Row]) -> list[tuple[str, str | None]]:
    """Returns (id, None) of each good row, ("", reason code) of each bad one."""
    return [(row.id, None) if row.problem is None else ("", row.problem[0]) for row in rows]


_READ: list[Row] = []


def collect(row: Row) -> None:
    _READ.append(row)


def read_rows(source_: Source) -> list[Row]:
    """Returns all rows of a source, sorted by id."""
    _READ.clear()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:  # runs in this process
        _ = source_.read(pipeline) | beam.Map(collect)
    return sorted(_READ, key=lambda row: row.id)
