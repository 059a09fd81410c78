"""Sources: tables and folders of receipts on any file system, as rows.

A source reads names and labels, never an image. An input that it can't read becomes a rejected row,
which goes to the quarantine. Tables are read here, folders by `folders` and `sroie`.
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

from beam_jobs.errors import BuildError
from beam_jobs.rejection import Reason
from beam_jobs.shown import MESSAGE_CHARACTERS, shortened, shown
from beam_jobs.sources import strict_json
from beam_jobs.sources.folders import below, folder_parts, folder_rows, is_input
from beam_jobs.sources.names import (
    in_nfc,
    none_for_null_words,
    parse_key,
    parse_name,
)
from beam_jobs.sources.parquet_table import RowGroup, read_header, read_rows
from beam_jobs.sources.row import Row, make_row, rejected_row
from beam_jobs.sources.sroie import IMAGE_FOLDER, sroie_row
from beam_jobs.sources.table_lines import line_ranges, lines_of, lines_of_range
from beam_jobs.sources.tables import check_header, check_lines, list_tables
from beam_jobs.storage import files
from beam_jobs.storage.paths import is_absolute, resolved
from schemas.receipt import Label

InputFormat = Literal["csv", "jsonl", "parquet", "folder", "sroie"]
INPUT_FORMATS: tuple[InputFormat, ...] = ("csv", "jsonl", "parquet", "folder", "sroie")
COLUMNS = ("image", "id", "layout", "group", "boxes")
_MAX_FIELD_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Source:
    """Receipts to read: where they are, in which format, and with which labels.

    Attributes:
      path: a table (or a glob pattern of tables), or a folder.
      format: how to read it.
      labels: the labels every row must have, beside the layout.
      columns: table column of each of `COLUMNS`, where it has another name.
      image_root: folder that relative image names of a table start from and must stay in.
      confine_images: whether images with absolute names must lie in `image_root`, too.
      images_only: whether only images are wanted: layouts may be missing, and boxes are not read.
        Not for SROIE folders, whose images are a folder of their own.
      layout: the layout of all rows, "" if it is not known yet; None to read it.
      needs_boxes: whether a table must have boxes.
    """

    path: str
    format: InputFormat
    labels: tuple[Label, ...] = ()
    columns: Mapping[str, str]
    image_root: str
    confine_images: bool = False
    images_only: bool = False
    layout: str | None = None
    needs_boxes: bool = False

    def __post_init__(self) -> None:
        if self.format == "folder" and self.labels:
            raise ValueError(
                f"label {self.labels[0].name!r} has no place in a folder of images: give a table "
                "that names the images and their labels"
            )

    def read(self, pipeline: beam.Pipeline) -> beam.PCollection[Row]:
        """Reads the rows of the source, in no order."""
        match self.format:
            case "folder":
                parts = (
                    pipeline
                    | beam.Create([self.path])
                    | "FolderParts" >> beam.FlatMap(folder_parts)
                    | beam.Reshuffle()
                )
                return parts | "FolderRows" >> beam.FlatMap(
                    folder_rows,
                    folder=self.path,
                    images_only=self.images_only,
                    layout=self.layout,
                )
            case "sroie":
                matches = pipeline | "Match" >> _match(
                    files.join(files.escape(self.path), IMAGE_FOLDER, "*")
                )
                images = matches | "Images" >> beam.Filter(self._is_input)
                # Each row reads two small files: spread that over the workers.
                return (
                    images
                    | beam.Reshuffle()
                    | "SroieRow"
                    >> beam.Map(sroie_row, folder=self.path, labels=self.labels, layout=self.layout)
                )
            case "parquet":
                groups = (
                    self._tables(pipeline)
                    | "RowGroups" >> beam.FlatMap(self.row_groups)  # RowGroup
                    | beam.Reshuffle()
                )
                return groups | "ReadTable" >> beam.FlatMap(self.parquet_rows)
            case "csv":
                tables = self._tables(pipeline) | beam.Map(check_lines, of_json=False)
                return tables | "ReadTable" >> beam.FlatMap(self.csv_rows)
            case "jsonl":
                lines = (
                    self._tables(pipeline)
                    | beam.Map(check_lines, of_json=True)
                    | "LineRanges" >> beam.FlatMap(line_ranges)  # ByteRange
                    | beam.Reshuffle()
                    | "ReadLines" >> beam.FlatMap(lines_of_range)  # bytes
                )
                return lines | "TableRow" >> beam.FlatMap(self.jsonl_row)

    def csv_rows(self, table: FileMetadata) -> Iterator[Row]:
        """Yields the rows of one CSV file with a header line.

        Raises:
          BuildError: the header lacks a column that every row needs.
        """
        csv.field_size_limit(_MAX_FIELD_BYTES)
        lines = _TextLines(table.path)
        reader = csv.DictReader(lines, restkey=None, strict=True)
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
                fix = "fix the quotes"
                if '\\"' in lines.last:
                    fix = 'write quotes as "", in Spark by .option("escape", "\\"")'
                # An open quote takes the rows after it for one cell, so all of them would be lost.
                if reader.line_num > start:
                    raise BuildError(
                        f"{place}: {error}, up to line {reader.line_num}: {fix}"
                    ) from error
                yield rejected_row(place, Reason.BAD_ROW, f"{place}: {error}: {fix}")
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
        """Yields the row of a JSON line, none of a blank line."""
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
        """Lists the row groups of one Parquet file.

        Raises:
          BuildError: the file can't be read, or its columns can't be used.
        """
        header, groups = read_header(
            table,
            names={self._column(name) for name in COLUMNS if name != "boxes"} & self._used,
            labels={label.name for label in self.labels},
        )
        self._check_header(table, header)
        return groups

    def parquet_rows(self, group: RowGroup) -> Iterator[Row]:
        """Yields the rows of one row group of a Parquet file."""
        for values in read_rows(group, self._used):
            yield self.table_row(values, repr(values))

    def table_row(self, values: Mapping[str, Any], source: str) -> Row:
        """Returns the row of one line of a table; `source` is its text, for the quarantine."""
        try:
            source.encode()
        except UnicodeEncodeError:
            message = "the row is not UTF-8: save the table as UTF-8"
            return rejected_row(source, Reason.BAD_ROW, message)

        def cell(name: str) -> Any:
            return none_for_null_words(values.get(self._column(name)))

        named = self._column("id") in values
        id_ = ""
        try:
            if named:
                id_ = parse_key("id", cell("id"))
            image = resolved(_image_name(cell("image")))
        except ValueError as error:
            # Most of the row may be an image.
            begin = shortened(source, MESSAGE_CHARACTERS)
            return rejected_row(begin, Reason.BAD_ROW, str(error), id_=id_)
        if not named:
            id_ = in_nfc(image)
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
            layout=cell("layout") if self.layout is None else self.layout,
            group=cell("group"),
            boxes=None if self.images_only else values.get(self._column("boxes")),
            raw_labels=values,
            labels=self.labels,
            source=source,
            needs_layout=self._needs_layout,
        )

    def _is_input(self, file: FileMetadata) -> bool:
        return is_input(below(file.path, self.path))

    def _tables(self, pipeline: beam.Pipeline) -> beam.PCollection[FileMetadata]:
        """Lists the tables, spread over the workers."""
        path = pipeline | beam.Create([self.path])
        return path | "ListTables" >> beam.FlatMap(list_tables) | "Spread" >> beam.Reshuffle()

    def _image_uri(self, name: str) -> str | None:
        """Returns where an image lies, None if that is outside the folders allowed."""
        leads_up = ".." in name.split("/")
        if is_absolute(name):
            # The table may write the root in another form of Unicode.
            root = in_nfc(self.image_root.rstrip("/")) + "/"
            inside = in_nfc(name).startswith(root) and not leads_up
            return name if inside or not self.confine_images else None
        path = posixpath.normpath(name) if leads_up else name
        return None if path.split("/")[0] == ".." else files.join(self.image_root, path)

    def _outside(self, name: str) -> str:
        if self.confine_images:
            return (
                f"image {shown(name)} lies outside --image-root {self.image_root}: name it from "
                "there on, or choose a folder that holds all images"
            )
        return (
            f"image {shown(name)} lies outside {self.image_root}: name it from there on, or by its "
            "whole path"
        )

    def _check_header(self, table: FileMetadata, header: Sequence[str]) -> None:
        check_header(table.path, header, required=self._required, optional=self._optional)

    @property
    def _required(self) -> list[str]:
        """Names of the columns that a table must have."""
        labels = [label.name for label in self.labels]
        names = ["image"]
        if self._needs_layout:
            names.append("layout")
        if self.needs_boxes:
            names.append("boxes")
        return [*map(self._column, names), *labels]

    @property
    def _optional(self) -> list[str]:
        names = ["id", "group"]
        if self.images_only:
            names.append("layout")
        elif not self.needs_boxes:
            names.append("boxes")
        return list(map(self._column, names))

    @property
    def _used(self) -> set[str]:
        """Names of the columns that are read."""
        return {*self._required, *self._optional}

    @property
    def _needs_layout(self) -> bool:
        return not self.images_only and self.layout is None

    def _column(self, name: str) -> str:
        return self.columns.get(name, name)


def _match(pattern: str) -> beam.PTransform:
    """Lists the files that match a glob pattern, as FileMetadata."""
    return beam.Create([pattern]) | beam.FlatMap(files.list_files)


class _TextLines:
    """Lines of a table's text; bytes that are not UTF-8 become lone surrogates.

    Attributes:
      last: the line that was read last, for an error.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.last = ""

    def __iter__(self) -> Iterator[str]:
        encoding = "utf-8-sig"  # the first line may start with a byte order mark
        for line in lines_of(self._path):
            self.last = line.decode(encoding, errors="surrogateescape")
            yield self.last
            encoding = "utf-8"


def _image_name(raw: Any) -> str:
    """Returns the name of an image's file, as it is written; "" where there is none.

    Raises:
      ValueError: the value is no name: it may be the image itself.
    """
    try:
        name = parse_name("image", raw)
        if name.startswith("data:"):
            raise ValueError(f"the image must be the name of a file, got {shown(name)}")
    except ValueError as error:
        raise ValueError(f"{error}: write images to files, and name these in the table") from error
    return raw.strip() if isinstance(raw, str) else name
