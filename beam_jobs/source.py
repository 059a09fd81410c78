"""Sources: tables and folders of receipts on any file system, as rows.

A source reads names and labels, never an image. What it can't read becomes a row with a problem,
which the build quarantines.
"""

import codecs
import csv
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.io import ReadAllFromText
from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.parquetio import ReadAllFromParquet

from beam_jobs import files
from beam_jobs.errors import BuildError
from beam_jobs.rejection import Reason
from beam_jobs.row import Row, make_row, rejected_row
from schemas.receipt import Label

InputFormat = Literal["csv", "jsonl", "parquet", "folder", "sroie"]
INPUT_FORMATS: tuple[InputFormat, ...] = ("csv", "jsonl", "parquet", "folder", "sroie")
COLUMNS = ("image", "id", "layout", "group", "boxes")
_MAX_FIELD_BYTES = 1 << 24
_RANGE_BYTES = 1 << 22  # of a table of lines, read by one worker at a time


@dataclass(frozen=True, kw_only=True)
class Source:
    """What to read.

    Attributes:
      path: a table (or a glob pattern of tables), or a folder.
      format: how to read it.
      labels: the labels every row must have, beside the layout.
      columns: table column of each of `COLUMNS`, where it has another name.
      image_root: folder that relative image names of a table start from.
    """

    path: str
    format: InputFormat
    labels: tuple[Label, ...] = ()
    columns: Mapping[str, str]
    image_root: str

    def __post_init__(self) -> None:
        if self.format == "folder" and self.labels:
            raise ValueError(
                f"label {self.labels[0].name!r} has no place in a folder of images: give a table "
                "that names the images and their labels"
            )

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection[Row]:
        """Rows of the source, in no order."""
        match self.format:
            case "folder":
                folder = pipeline | beam.Create([self.path])
                return folder | "FolderRows" >> beam.FlatMap(self.folder_rows)
            case "sroie":
                matches = pipeline | "Match" >> _match(
                    files.join(files.escape(self.path), "img", "*")
                )
                # Each row reads two small files: spread that over the workers.
                return matches | beam.Reshuffle() | "SroieRow" >> beam.Map(self.sroie_row)
            case "parquet":
                rows = (
                    pipeline
                    | "Match" >> _match(self.path)
                    | "Escape" >> beam.Map(_escaped)
                    | ReadAllFromParquet()  # dict
                )
                return rows | "TableRow" >> beam.Map(lambda row: self.table_row(row, repr(row)))
            case "csv":
                matches = pipeline | "Match" >> _match(self.path)
                return matches | beam.Reshuffle() | "ReadTable" >> beam.FlatMap(self.csv_rows)
            case "jsonl":
                lines = (
                    pipeline
                    | "Match" >> _match(self.path)
                    | "Escape" >> beam.Map(_escaped)
                    | ReadAllFromText(coder=BytesCoder(), desired_bundle_size=_RANGE_BYTES)  # bytes
                )
                return lines | "TableRow" >> beam.FlatMap(self.jsonl_row)

    def csv_rows(self, table: FileMetadata) -> Iterator[Row]:
        """Rows of one CSV file with a header line.

        Raises:
          BuildError: the header lacks a column that every row needs.
        """
        csv.field_size_limit(_MAX_FIELD_BYTES)
        reader = csv.DictReader(_lines(table.path), restkey=None, strict=True)
        required = [self._column("image"), self._column("layout")]
        required += [label.name for label in self.labels]
        try:
            header = reader.fieldnames or ()
        except csv.Error as error:
            raise BuildError(
                f"{table.path} has a header that can't be read, {error}: name the columns with "
                "--columns, or fix the header"
            ) from error
        if absent := [name for name in required if name not in header]:
            raise BuildError(
                f"{table.path} has no column {', '.join(absent)}; its header is "
                f"{', '.join(header)}: name the columns with --columns, or fix the header"
            )
        while True:
            start = reader.line_num + 1
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                place = f"{table.path}, line {start}"
                if reader.line_num > start:  # an open quote has swallowed other rows
                    raise BuildError(
                        f"{place}: {error}, up to line {reader.line_num}: mend the quotes"
                    ) from error
                yield rejected_row(place, Reason.BAD_ROW, f"{place}: {error}")
                continue
            source = json.dumps(
                {name or "": value for name, value in values.items()},
                ensure_ascii=False,
                sort_keys=True,
            )
            if None in values:
                yield rejected_row(source, Reason.BAD_ROW, "more cells than the header names")
            else:
                yield self.table_row(values, source)

    def jsonl_row(self, line: bytes) -> Iterator[Row]:
        """Row of a JSON line; none of a blank one."""
        text = line.removeprefix(codecs.BOM_UTF8).decode(errors="surrogateescape").strip()
        if not text:
            return
        try:
            values = json.loads(text)
            if not isinstance(values, dict):
                raise ValueError("not a JSON object")
        except (ValueError, RecursionError) as error:
            yield rejected_row(text, Reason.BAD_ROW, f"not a JSON object: {error}")
        else:
            yield self.table_row(values, text)

    def table_row(self, values: Mapping[str, Any], source: str) -> Row:
        """Row of one table line; `source` is its text, for the quarantine."""
        try:
            source.encode()
        except UnicodeEncodeError:
            return rejected_row(source, Reason.BAD_ROW, "the row is not UTF-8")
        image = str(values.get(self._column("image")) or "").strip()
        named = self._column("id") in values
        id_ = _text(values[self._column("id")]) if named else image
        if not image:
            return rejected_row(source, Reason.IMAGE_MISSING, "the row names no image", id_=id_)
        uri = image if _is_absolute(image) else files.join(self.image_root, image)
        if not id_:
            return rejected_row(source, Reason.ID_MISSING, "the row's id is empty", uri=uri)
        return make_row(
            id_=id_,
            uri=uri,
            layout=values.get(self._column("layout")),
            group=values.get(self._column("group")),
            boxes=values.get(self._column("boxes")),
            raw_labels=values,
            labels=self.labels,
            source=source,
        )

    def folder_rows(self, folder: str) -> Iterator[Row]:
        """Rows of all files below a folder; of this machine also behind links, unlike Beam's.

        Raises:
          BuildError: a folder can't be listed.
        """
        local = files.is_local(folder)
        # Beam would read no link to a folder, and say nothing.
        paths = _local_files_below(folder.rstrip("/") or "/") if local else files.list_below(folder)
        return map(self.folder_row, paths)

    def folder_row(self, path: str) -> Row:
        """Row of one file below a folder: the first subfolder is its layout, its path its id."""
        id_ = _below(path, self.path)
        layout, _, rest = id_.partition("/")
        return make_row(
            id_=id_,
            uri=path,
            layout=layout if rest else "",
            raw_labels={},
            labels=self.labels,
            source=id_,
        )

    def sroie_row(self, image: FileMetadata) -> Row:
        """Row of one image of a SROIE folder: its company, upper-cased, is its layout."""
        name = _below(image.path, files.join(self.path, "img"))
        id_ = name.rpartition(".")[0] or name
        boxes_path = files.join(self.path, "box", f"{id_}.csv")
        key_path = files.join(self.path, "key", f"{id_}.json")
        try:
            key = json.loads(_decoded(files.read(key_path)))
            if not isinstance(key, dict):
                raise ValueError("not a JSON object")
        except (OSError, ValueError) as error:
            return rejected_row(
                key_path, Reason.BAD_ROW, f"{key_path}: {error}", id_=id_, uri=image.path
            )
        try:
            boxes = [
                _quadrilateral(line)
                for line in _decoded(files.read(boxes_path)).splitlines()
                if line.strip()
            ]
        except (OSError, ValueError) as error:
            return rejected_row(
                boxes_path, Reason.BOXES_INVALID, f"{boxes_path}: {error}", id_=id_, uri=image.path
            )
        return make_row(
            id_=id_,
            uri=image.path,
            layout=str(key.get("company") or "").upper(),
            boxes=boxes,
            raw_labels=key,
            labels=self.labels,
            source=json.dumps(key, ensure_ascii=False, sort_keys=True),
        )

    def _column(self, name: str) -> str:
        return self.columns.get(name, name)


def _match(pattern: str) -> beam.PTransform:
    """FileMetadata of what matches; a job without input says so itself, see beam_jobs.job."""
    return beam.Create([pattern]) | beam.FlatMap(files.list_files)


def _local_files_below(folder: str, above: frozenset[str] = frozenset()) -> Iterator[str]:
    own = os.path.realpath(folder)
    if own in above:  # a link to a folder that it lies in, whose files come anyway
        return
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError as error:
        raise BuildError(
            f"folder {folder} can't be listed: {error}; make it readable, or move it out of the "
            "input"
        ) from error
    for entry in found:
        if entry.is_dir():
            yield from _local_files_below(entry.path, above | {own})
        else:
            yield entry.path


def _escaped(table: FileMetadata) -> FileMetadata:
    """For Beam's readers, which silently skip a path that does not match itself as a pattern."""
    pattern = files.escape(table.path)
    if pattern != table.path and not FileSystems.match([pattern])[0].metadata_list:
        raise BuildError(
            f"{table.path} lies in a folder that Beam can't match: rename it, without *, ? and ["
        )
    return FileMetadata(pattern, table.size_in_bytes)


def _lines(path: str) -> Iterator[str]:
    """Lines of a text file, which may be compressed; what is not UTF-8 becomes lone surrogates."""
    with FileSystems.open(path, compression_type=CompressionTypes.AUTO) as file:
        encoding = "utf-8-sig"  # the first line may start with a byte order mark
        for line in iter(file.readline, b""):
            yield line.decode(encoding, errors="surrogateescape")
            encoding = "utf-8"


def _quadrilateral(line: str) -> dict[str, float | str]:
    """Bounds of `x1,y1,x2,y2,x3,y3,x4,y4,transcript`; the transcript may hold commas."""
    cells = line.split(",", 8)
    if len(cells) < 9:
        raise ValueError(f"{line!r} is not eight numbers and a transcript")
    xs, ys = [float(cell) for cell in cells[0:8:2]], [float(cell) for cell in cells[1:8:2]]
    return {
        "xmin": min(xs),
        "ymin": min(ys),
        "xmax": max(xs),
        "ymax": max(ys),
        "text": cells[8].strip(),
    }


def _decoded(data: bytes) -> str:
    """SROIE's annotations are UTF-8 but for a few files in Latin-1."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _below(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/")


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or FileSystems.get_scheme(path) is not None
