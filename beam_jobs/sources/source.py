"""Sources: tables and folders of receipts on any file system, as rows.

A source reads names and labels, never an image. What it can't read becomes a row with a problem,
which the build quarantines.
"""

import codecs
import csv
import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apache_beam as beam
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.filesystems import FileSystems

from beam_jobs.errors import BuildError
from beam_jobs.rejection import Reason
from beam_jobs.sources import strict_json
from beam_jobs.sources.folders import is_system_file, local_files_below
from beam_jobs.sources.parquet_table import RowGroup, read_header, read_rows
from beam_jobs.sources.row import Row, make_row, number, rejected_row
from beam_jobs.sources.store_folders import entries, files_below
from beam_jobs.sources.table_lines import line_ranges, lines_of, lines_of_range
from beam_jobs.sources.tables import check_header, list_tables
from beam_jobs.storage import files
from schemas.receipt import Label

InputFormat = Literal["csv", "jsonl", "parquet", "folder", "sroie"]
INPUT_FORMATS: tuple[InputFormat, ...] = ("csv", "jsonl", "parquet", "folder", "sroie")
COLUMNS = ("image", "id", "layout", "group", "boxes")
_MAX_FIELD_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Source:
    """What to read.

    Attributes:
      path: a table (or a glob pattern of tables), or a folder.
      format: how to read it.
      labels: the labels every row must have, beside the layout.
      columns: table column of each of `COLUMNS`, where it has another name.
      image_root: folder that relative image names of a table start from and must stay in.
      confine_images: whether absolute image names must lie in it, too.
    """

    path: str
    format: InputFormat
    labels: tuple[Label, ...] = ()
    columns: Mapping[str, str]
    image_root: str
    confine_images: bool = False

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
                parts = (
                    pipeline
                    | beam.Create([self.path])
                    | "FolderParts" >> beam.FlatMap(_folder_parts)
                    | beam.Reshuffle()
                )
                return parts | "FolderRows" >> beam.FlatMap(self.folder_rows)
            case "sroie":
                matches = pipeline | "Match" >> _match(
                    files.join(files.escape(self.path), "img", "*")
                )
                images = matches | "Images" >> beam.Filter(self._is_input)
                # Each row reads two small files: spread that over the workers.
                return images | beam.Reshuffle() | "SroieRow" >> beam.Map(self.sroie_row)
            case "parquet":
                groups = (
                    self._tables(pipeline)
                    | "RowGroups" >> beam.FlatMap(self.row_groups)  # RowGroup
                    | beam.Reshuffle()
                )
                return groups | "ReadTable" >> beam.FlatMap(self.parquet_rows)
            case "csv":
                return self._tables(pipeline) | "ReadTable" >> beam.FlatMap(self.csv_rows)
            case "jsonl":
                lines = (
                    self._tables(pipeline)
                    | "LineRanges" >> beam.FlatMap(line_ranges)  # ByteRange
                    | beam.Reshuffle()
                    | "ReadLines" >> beam.FlatMap(lines_of_range)  # bytes
                )
                return lines | "TableRow" >> beam.FlatMap(self.jsonl_row)

    def csv_rows(self, table: FileMetadata) -> Iterator[Row]:
        """Rows of one CSV file with a header line.

        Raises:
          BuildError: the header lacks a column that every row needs.
        """
        csv.field_size_limit(_MAX_FIELD_BYTES)
        reader = csv.DictReader(_text_lines(table.path), restkey=None, strict=True)
        try:
            header = reader.fieldnames or ()
        except csv.Error as error:
            raise BuildError(
                f"{table.path} has a header that can't be read, {error}: name the columns with "
                "--columns, or fix the header"
            ) from error
        self._check_header(table, header)
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
                        f"{place}: {error}, up to line {reader.line_num}: fix the quotes"
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
            values = strict_json.loads(text)
            if not isinstance(values, dict):
                raise ValueError("not a JSON object")
        except (ValueError, RecursionError) as error:
            yield rejected_row(text, Reason.BAD_ROW, f"not a JSON object: {error}")
        else:
            yield self.table_row(values, text)

    def row_groups(self, table: FileMetadata) -> list[RowGroup]:
        """Row groups of one Parquet file.

        Raises:
          BuildError: the file can't be read, or its columns can't be used.
        """
        header, groups = read_header(table)
        self._check_header(table, header)
        return groups

    def parquet_rows(self, group: RowGroup) -> Iterator[Row]:
        """Rows of one row group of a Parquet file."""
        for values in read_rows(group, {*self._required, *self._optional}):
            yield self.table_row(values, repr(values))

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
        uri = self._image_uri(image)
        if uri is None:
            return rejected_row(source, Reason.IMAGE_OUTSIDE, self._outside(image), id_=id_)
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

    def folder_rows(self, part: str) -> Iterator[Row]:
        """Rows of the files of a part of the folder but system files; locally also behind links.

        Raises:
          BuildError: a folder can't be listed.
        """
        local = files.is_local(part)
        # Beam would read no link to a folder, and say nothing.
        paths = local_files_below(part.rstrip("/") or "/") if local else files_below(part)
        for path in paths:
            if not is_system_file(_below(path, self.path)):
                yield self.folder_row(path)

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
            key = strict_json.loads(_decoded(files.read(key_path)))
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

    def _is_input(self, file: FileMetadata) -> bool:
        return not is_system_file(_below(file.path, self.path))

    def _tables(self, pipeline: beam.Pipeline) -> beam.PCollection[FileMetadata]:
        """Metadata of the tables, spread over the workers."""
        path = pipeline | beam.Create([self.path])
        return path | "ListTables" >> beam.FlatMap(list_tables) | "Spread" >> beam.Reshuffle()

    def _image_uri(self, name: str) -> str | None:
        """Where an image lies; None if that is where the table may name none."""
        leads_up = ".." in name.split("/")
        if _is_absolute(name):
            inside = name.startswith(f"{self.image_root.rstrip('/')}/") and not leads_up
            return name if inside or not self.confine_images else None
        path = posixpath.normpath(name) if leads_up else name
        return None if path.split("/")[0] == ".." else files.join(self.image_root, path)

    def _outside(self, name: str) -> str:
        if self.confine_images:
            return (
                f"image {name!r} lies outside --image-root {self.image_root}: name it from there "
                "on, or choose a folder that holds all images"
            )
        return (
            f"image {name!r} lies outside {self.image_root}: name it from there on, or by its "
            "whole path"
        )

    def _check_header(self, table: FileMetadata, header: Sequence[str]) -> None:
        check_header(table.path, header, required=self._required, optional=self._optional)

    @property
    def _required(self) -> list[str]:
        """Columns that a table must have."""
        labels = [label.name for label in self.labels]
        return [self._column("image"), self._column("layout"), *labels]

    @property
    def _optional(self) -> list[str]:
        return [self._column(name) for name in ("id", "group", "boxes")]

    def _column(self, name: str) -> str:
        return self.columns.get(name, name)


def _match(pattern: str) -> beam.PTransform:
    """FileMetadata of the files that match."""
    return beam.Create([pattern]) | beam.FlatMap(files.list_files)


def _text_lines(path: str) -> Iterator[str]:
    """Lines of a table's text; what is not UTF-8 becomes lone surrogates."""
    encoding = "utf-8-sig"  # the first line may start with a byte order mark
    for line in lines_of(path):
        yield line.decode(encoding, errors="surrogateescape")
        encoding = "utf-8"


def _folder_parts(folder: str) -> Iterator[str]:
    """Yields what workers may list apart: in a store, all that lies directly in the folder."""
    if files.is_local(folder):
        yield folder
    else:
        yield from entries(files.join(folder, ""))


def _quadrilateral(line: str) -> dict[str, float | str]:
    """Bounds of `x1,y1,x2,y2,x3,y3,x4,y4,transcript`; the transcript may hold commas."""
    cells = line.split(",", 8)
    if len(cells) < 9:
        raise ValueError(f"{line!r} is not eight numbers and a transcript")
    xs, ys = [number(cell) for cell in cells[0:8:2]], [number(cell) for cell in cells[1:8:2]]
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
