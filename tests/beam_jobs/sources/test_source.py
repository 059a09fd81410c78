"""Sources: every line, row and file becomes a row, good or bad, and none is lost."""

import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

import apache_beam as beam
from apache_beam.io.filesystem import FileMetadata
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.testing.util import assert_that

import beam_jobs.sources.folders
from beam_jobs.errors import BuildError
from beam_jobs.rejection import Reason
from beam_jobs.sources import table_lines
from beam_jobs.sources.folders import folder_row, folder_rows
from beam_jobs.sources.row import Row
from beam_jobs.sources.source import InputFormat, Source
from beam_jobs.sources.sroie import sroie_row
from beam_jobs.storage.files import escape
from schemas.receipt import Label

LABELS = (Label(name="total", type="float"), Label(name="currency", type="category"))


def source(format_: InputFormat, path: Path | str = "/data", **options: Any) -> Source:
    defaults: dict[str, Any] = {"columns": {}, "image_root": "/images"}
    return Source(path=str(path), format=format_, **(defaults | options))


def metadata(path: Path | str) -> FileMetadata:
    return FileMetadata(str(path), 0)


def table(path: Path, text: str | bytes) -> FileMetadata:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return metadata(path)


def outline(rows: Iterable[Row]) -> list[tuple[str, str | None]]:
    """(id, or reason code) of each row."""
    return [(row.id, None) if row.problem is None else ("", row.problem[0]) for row in rows]


_READ: list[Row] = []


def collect(row: Row) -> None:
    _READ.append(row)


def read_rows(source_: Source) -> list[Row]:
    """All rows of a source, by their id."""
    _READ.clear()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:  # runs in this process
        _ = source_.read(pipeline) | beam.Map(collect)
    return sorted(_READ, key=lambda row: row.id)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_csv(tmp_path: Path, name: str) -> None:
    file = table(
        tmp_path / name,
        "image,id,layout,group,boxes,total,currency,more\n"
        'a.jpg,1,kiosk,g,"[{""xmin"":1,""ymin"":2,""xmax"":3,""ymax"":4,""text"":""x,y""}]",2.5,EUR,?\n'
        "\n"
        '/abs/b.jpg,2,"Bäcker\n",,,3,CHF,\n'
        "gs://bucket/c.jpg,3,kiosk,,,4,EUR,\n",
    )
    rows = list(source("csv", labels=LABELS).csv_rows(file))
    assert rows == [
        Row(
            id="1",
            uri="/images/a.jpg",
            group="g",
            categories={"layout": "kiosk", "currency": "EUR"},
            labels={"total": 2.5},
            boxes=((1.0, 2.0, 3.0, 4.0, "x,y"),),
        ),
        Row(
            id="2",
            uri="/abs/b.jpg",
            categories={"layout": "Bäcker", "currency": "CHF"},
            labels={"total": 3.0},
        ),
        Row(
            id="3",
            uri="gs://bucket/c.jpg",
            categories={"layout": "kiosk", "currency": "EUR"},
            labels={"total": 4.0},
        ),
    ]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        pytest.param("image,layout\n", [], id="header_only"),
        pytest.param("image,layout\na,x", [("a", None)], id="no_last_newline"),
        pytest.param("image,layout\r\na,x\r\n", [("a", None)], id="windows"),
        pytest.param("\ufeffimage,layout\na,x\n", [("a", None)], id="byte_order_mark"),
        pytest.param("layout,image\nx,a\n", [("a", None)], id="columns_in_another_order"),
        pytest.param("image,layout\na\n", [("", Reason.LAYOUT_MISSING)], id="cells_missing"),
        pytest.param("image,layout\n,x\n", [("", Reason.IMAGE_MISSING)], id="no_image"),
        pytest.param("image,id,layout\na,,x\n", [("", Reason.ID_MISSING)], id="no_id"),
        pytest.param(
            "image,layout\na,x,y\nb,x\n", [("", Reason.BAD_ROW), ("b", None)], id="too_many_cells"
        ),
        pytest.param(
            "image,layout,\na,x,,z\nb,x,\n",
            [("", Reason.BAD_ROW), ("b", None)],
            id="too_many_cells_beside_a_nameless_column",
        ),
        pytest.param(
            'image,layout\na,"x"y\nb,x\n', [("", Reason.BAD_ROW), ("b", None)], id="bad_quote"
        ),
        pytest.param(
            'image,layout\nb,x\na,"x\n', [("b", None), ("", Reason.BAD_ROW)], id="open_quote"
        ),
        pytest.param(
            b"image,layout\na,\xe4\nb,\xc3\xa4\n",
            [("", Reason.BAD_ROW), ("b", None)],
            id="not_utf8",
        ),
        pytest.param(
            "image,layout\na," + "x" * (2**24 + 1) + "\nb,x\n",
            [("", Reason.BAD_ROW), ("b", None)],
            id="huge_cell",
        ),
    ],
)
def test_odd_csv(tmp_path: Path, text: str | bytes, rows: list[tuple[str, Any]]) -> None:
    assert outline(source("csv").csv_rows(table(tmp_path / "t.csv", text))) == rows


def test_a_bad_csv_row_says_where_and_why(tmp_path: Path) -> None:
    file = table(tmp_path / "t.csv", 'image,layout\na,x\nb,"x"y\n')
    *_, bad = source("csv").csv_rows(file)
    assert bad.problem is not None
    assert bad.problem[1].startswith(f"{file.path}, line ")
    assert "',' expected after '\"'" in bad.problem[1]
    [wide] = source("csv").csv_rows(table(tmp_path / "u.csv", "image,layout\na,x,y\n"))
    assert wide.problem == (Reason.BAD_ROW, "more cells than the header names")
    assert json.loads(wide.source)["image"] == "a"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "has no column image, layout, total, currency", id="empty"),
        pytest.param(
            "image,shop,total,currency\n",
            "has no column layout; its header is image, shop, total, currency: ",
            id="layout_called_otherwise",
        ),
        pytest.param("image,layout,total\n", "has no column currency; its", id="no_label"),
        pytest.param('image,"layout"x\na,b\n', "t.csv", id="header_with_a_bad_quote"),
        pytest.param('image,"layout\na,b\n', "t.csv", id="header_with_an_open_quote"),
    ],
)
def test_a_csv_header_that_cannot_work(tmp_path: Path, text: str, sentence: str) -> None:
    file = table(tmp_path / "t.csv", text)
    with pytest.raises(BuildError) as caught:
        list(source("csv", labels=LABELS).csv_rows(file))
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(file.path)
    assert str(caught.value).endswith("name the columns with --columns, or fix the header")


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("image,layout,layout", "layout"),
        ("image,layout,id,boxes,id,group,boxes,group", "id, group, boxes"),
    ],
)
def test_columns_in_use_have_their_own_names(tmp_path: Path, header: str, names: str) -> None:
    file = table(tmp_path / "t.csv", f"{header}\n{header}\n")
    with pytest.raises(BuildError) as caught:
        list(source("csv").csv_rows(file))
    assert str(caught.value) == (
        f"{file.path} has several columns called {names}: give every column that is used its own "
        "name"
    )


def test_columns_that_are_not_used_may_share_a_name(tmp_path: Path) -> None:
    file = table(tmp_path / "t.csv", "image,layout,,,x,x\na,kiosk,1,2,3,4\n")
    assert outline(source("csv").csv_rows(file)) == [("a", None)]


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    columns = {"image": "file", "id": "nr", "layout": "shop", "group": "user", "boxes": "lines"}
    file = table(tmp_path / "t.csv", "file,nr,shop,user,lines,layout\na,7,kiosk,u,[],ignored\n")
    [row] = source("csv", columns=columns).csv_rows(file)
    assert row == Row(id="7", uri="/images/a", group="u", categories={"layout": "kiosk"})


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "[t]*.jsonl"])
def test_jsonl(tmp_path: Path, name: str) -> None:
    table(
        tmp_path / name,
        '\ufeff{"image": "a.jpg", "layout": "Bäcker", "total": 2, "currency": "EUR", "boxes": '
        '[{"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}]}\n'
        "\n  \n"
        '{"image": "b.jpg", "id": 7, "layout": 12, "group": 3, "total": "2", "currency": "EUR"}\r\n'
        '{"image": "c.jpg"}',
    )

    def check(rows: list[Row]) -> None:
        first, second, bad = sorted(rows, key=lambda row: row.uri)
        assert first == Row(
            id="a.jpg",
            uri="/images/a.jpg",
            categories={"layout": "Bäcker", "currency": "EUR"},
            labels={"total": 2.0},
            boxes=((1.0, 2.0, 3.0, 4.0, ""),),
        )
        assert second == Row(
            id="7",
            uri="/images/b.jpg",
            group="3",
            categories={"layout": "12", "currency": "EUR"},
            labels={"total": 2.0},
        )
        assert (bad.id, bad.source) == ("c.jpg", '{"image": "c.jpg"}')
        assert bad.problem == (Reason.LABEL_MISSING, "label total has no value")

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        path = escape(str(tmp_path / name))
        assert_that(source("jsonl", path, labels=LABELS).read(pipeline), check)


def test_ranges_of_a_table_are_read_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f'{{"image": "{number}", "layout": "x"}}' for number in range(200)]
    table(tmp_path / "t.jsonl", "\n".join(lines))
    monkeypatch.setattr(table_lines, "_RANGE_BYTES", 100)

    def check(rows: list[Row]) -> None:
        assert sorted(int(row.id) for row in rows) == list(range(200))

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(source("jsonl", tmp_path / "t.jsonl").read(pipeline), check)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b"{", Reason.BAD_ROW, id="cut_off"),
        pytest.param(b"[1]", Reason.BAD_ROW, id="list"),
        pytest.param(b"null", Reason.BAD_ROW, id="null"),
        pytest.param(b"image,layout", Reason.BAD_ROW, id="csv"),
        pytest.param(
            b'{"image": "a", "layout": "x", "layout": "y"}', Reason.BAD_ROW, id="key_twice"
        ),
        pytest.param(
            b'{"image": "a", "layout": "x", "boxes": [{"xmin": 1, "xmin": 2}]}',
            Reason.BAD_ROW,
            id="key_of_a_box_twice",
        ),
        pytest.param(b"[" * 100_000, Reason.BAD_ROW, id="deep"),
        pytest.param(b'{"image": "\xff", "layout": "x"}', Reason.BAD_ROW, id="not_utf8"),
        pytest.param(b'{"image": "a", "layout": "\\ud800"}', Reason.BAD_ROW, id="lone_surrogate"),
        pytest.param(b'{"image": "\\ud800", "layout": "x"}', Reason.BAD_ROW, id="surrogate_image"),
        pytest.param(b'{"image": null, "layout": "x"}', Reason.IMAGE_MISSING, id="null_image"),
        pytest.param(b'{"layout": "x"}', Reason.IMAGE_MISSING, id="no_image"),
        pytest.param(b'{"image": "a", "id": null, "layout": "x"}', Reason.ID_MISSING, id="null_id"),
        pytest.param(b'{"image": "a"}', Reason.LAYOUT_MISSING, id="no_layout"),
        pytest.param(
            b'{"image": "a", "layout": "x", "boxes": 3}', Reason.BOXES_INVALID, id="boxes"
        ),
    ],
)
def test_odd_jsonl(line: bytes, reason: Reason) -> None:
    [bad] = source("jsonl").jsonl_row(line)
    assert bad.problem is not None
    assert bad.problem[0] == reason
    assert bad.problem[1]
    assert Row.from_bytes(bad.to_bytes()) == bad


def test_the_id_zero_is_an_id() -> None:
    row = source("jsonl").table_row({"image": "a", "id": 0, "layout": "x"}, "text")
    assert (row.id, row.problem) == ("0", None)


@pytest.mark.parametrize(
    ("image", "uri"),
    [
        ("a.jpg", "/images/a.jpg"),
        ("x/../a.jpg", "/images/a.jpg"),
        ("..a/b..jpg", "/images/..a/b..jpg"),
        ("./x//a.jpg", "/images/./x//a.jpg"),
        ("../a.jpg", None),
        ("..", None),
        ("x/../../images/a.jpg", None),
        ("../../../../etc/passwd", None),
        ("/etc/passwd", "/etc/passwd"),
        ("gs://b/a.jpg", "gs://b/a.jpg"),
    ],
)
def test_relative_image_names_stay_below_the_image_root(image: str, uri: str | None) -> None:
    row = source("jsonl").table_row({"image": image, "layout": "x"}, "text")
    if uri is not None:
        assert (row.uri, row.problem) == (uri, None)
        return
    sentence = f"image {image!r} lies outside /images: name it from there on, or by its whole path"
    assert row.problem == (Reason.IMAGE_OUTSIDE, sentence)
    assert (row.id, row.uri) == (image, "")  # so that none of its bytes are read


@pytest.mark.parametrize(
    ("image", "inside"),
    [
        ("a.jpg", True),
        ("../a.jpg", False),
        ("/images/a.jpg", True),
        ("/images/x/../../etc/passwd", False),
        ("/images-2/a.jpg", False),
        ("/etc/passwd", False),
        ("gs://b/a.jpg", False),
    ],
)
def test_images_can_be_confined_to_the_image_root(image: str, inside: bool) -> None:
    for root in ("/images", "/images/"):
        confined = source("jsonl", image_root=root, confine_images=True)
        row = confined.table_row({"image": image, "layout": "x"}, "text")
        assert bool(row.uri) == inside
        assert (row.problem is None) == inside
        if row.problem is not None:
            sentence = f"image {image!r} lies outside --image-root {root}: name it from there on, "
            assert row.problem[1].startswith(sentence)


def test_bad_lines_are_kept_as_they_were() -> None:
    [bad] = source("jsonl").jsonl_row('{"image": "ä",'.encode())
    assert bad.source == '{"image": "ä",'
    assert bad.id.startswith("row:")
    assert bad.problem is not None
    assert bad.problem[1].startswith("not a JSON object: ")


@pytest.mark.parametrize(
    ("path", "id_", "layout"),
    [
        ("/data/kiosk/a.jpg", "kiosk/a.jpg", "kiosk"),
        ("/data/kiosk/2024/b.png", "kiosk/2024/b.png", "kiosk"),
        ("/data/Bäcker & Co/c", "Bäcker & Co/c", "Bäcker & Co"),
    ],
)
@pytest.mark.parametrize("root", ["/data", "/data/"])
def test_folder(root: str, path: str, id_: str, layout: str) -> None:
    row = folder_row(path, folder=root)
    assert row == Row(id=id_, uri=path, categories={"layout": layout})


def test_a_file_beside_the_folders_has_no_layout() -> None:
    row = folder_row("/data/a.jpg", folder="/data")
    assert row.problem == (Reason.LAYOUT_MISSING, "the receipt has no layout")
    assert (row.id, row.uri) == ("a.jpg", "/data/a.jpg")


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    for name in ("photos/kiosk/a.jpg", "elsewhere/b.jpg", "elsewhere/deep/c.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    root = tmp_path / "photos"
    (root / "bakery").symlink_to(tmp_path / "elsewhere")
    (root / "kiosk" / "d.jpg").symlink_to(tmp_path / "gone")
    (tmp_path / "elsewhere" / "back").symlink_to(root)
    found = folder_rows(f"{root}/", folder=str(root))
    assert sorted(row.id for row in found) == [
        "bakery/b.jpg",
        "bakery/deep/c.jpg",
        "kiosk/a.jpg",
        "kiosk/d.jpg",
    ]


def test_links_and_system_files_add_no_rows(tmp_path: Path) -> None:
    names = ("shop/a.jpg", "shop/.DS_Store", "shop/Thumbs.db", ".cache/b.jpg", "zoo/c.jpg")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "shop" / "zoo").symlink_to(tmp_path / "zoo")
    (tmp_path / "zoo" / "shop").symlink_to(tmp_path / "shop")
    (tmp_path / "zoo" / "itself").symlink_to(tmp_path / "zoo" / "itself")
    rows = folder_rows(str(tmp_path), folder=str(tmp_path))
    assert sorted(row.id for row in rows) == ["shop/a.jpg", "zoo/c.jpg", "zoo/itself"]


def test_placeholders_of_a_store_add_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["", "shop/", "shop_$folder$", "shop/a.jpg", "shop/.DS_Store"]
    monkeypatch.setattr(
        beam_jobs.sources.folders, "files_below", lambda part: [part + n for n in names]
    )
    rows = folder_rows("gs://b/in/", folder="gs://b/in")
    assert [row.uri for row in rows] == ["gs://b/in/shop/a.jpg"]


def test_system_files_of_a_sroie_folder_add_no_rows(tmp_path: Path) -> None:
    for folder in ("img", "box", "key"):
        (tmp_path / folder).mkdir()
    for name in (".DS_Store", "Thumbs.db", "X.jpg"):
        (tmp_path / "img" / name).write_bytes(b"x")
    assert [row.id for row in read_rows(source("sroie", tmp_path))] == ["X"]


def test_a_folder_that_can_t_be_listed_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(BuildError, match=f"^folder {tmp_path} can't be listed: .*Permission"):
        list(folder_rows(str(tmp_path), folder=str(tmp_path)))


def test_a_file_whose_name_is_not_utf8_is_quarantined(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/kiosk"
    Path(os.fsdecode(folder)).mkdir()
    Path(os.fsdecode(folder + b"/\xff.jpg")).write_bytes(b"x")
    [row] = folder_rows(str(tmp_path), folder=str(tmp_path))
    assert row.problem is not None
    assert row.problem[0] == Reason.BAD_ROW
    assert Row.from_bytes(row.to_bytes()) == row


@pytest.fixture
def sroie(tmp_path: Path) -> Callable[..., Row]:
    """Reads one receipt of a SROIE folder whose box and key files have these contents."""
    for folder in ("img", "box", "key"):
        (tmp_path / folder).mkdir()

    def read(
        *,
        key: bytes | None = b'{"company": "Kiosk"}',
        box: bytes | None = b"",
        name: str = "X 1.jpg",
    ) -> Row:
        image = tmp_path / "img" / name
        image.write_bytes(b"not read")
        stem = name.rpartition(".")[0] or name
        for folder, suffix, data in (("key", ".json", key), ("box", ".csv", box)):
            if data is not None:
                (tmp_path / folder / (stem + suffix)).write_bytes(data)
        labels = (Label(name="total", type="string"),) if key and b"total" in key else ()
        return sroie_row(metadata(image), folder=str(tmp_path), labels=labels)

    return read


def test_sroie(sroie: Callable[..., Row], tmp_path: Path) -> None:
    row = sroie(
        key='{"company": "Bäcker", "total": "9.00", "date": "1.1."}'.encode(),
        box=b"10,20,30,21,31,40,9,39,TOTAL, RM\r\n\r\n1,1,2,1,2,2,1,2,\n",
    )
    assert row == Row(
        id="X 1",
        uri=str(tmp_path / "img" / "X 1.jpg"),
        categories={"layout": "BÄCKER"},
        labels={"total": "9.00"},
        boxes=((9.0, 20.0, 31.0, 40.0, "TOTAL, RM"), (1.0, 1.0, 2.0, 2.0, "")),
    )


def test_sroie_annotations_may_be_latin1(sroie: Callable[..., Row]) -> None:
    row = sroie(key=b'{"company": "B\xe4cker"}', box=b"1,1,2,1,2,2,1,2,K\xe4se\n")
    assert row.categories == {"layout": "BÄCKER"}
    assert [box[4] for box in row.boxes] == ["Käse"]


@pytest.mark.parametrize(
    ("files", "reason", "message"),
    [
        pytest.param({"key": None}, Reason.BAD_ROW, "/key/X 1.json: ", id="no_key"),
        pytest.param({"key": b"{"}, Reason.BAD_ROW, "/key/X 1.json: ", id="broken_key"),
        pytest.param({"key": b"[]"}, Reason.BAD_ROW, "not a JSON object", id="key_is_a_list"),
        pytest.param(
            {"key": b'{"company": "a", "company": "b"}'},
            Reason.BAD_ROW,
            "the key 'company' comes twice",
            id="company_twice",
        ),
        pytest.param({"key": b"{}"}, Reason.LAYOUT_MISSING, "has no layout", id="no_company"),
        pytest.param({"box": None}, Reason.BOXES_INVALID, "/box/X 1.csv: ", id="no_boxes"),
        pytest.param(
            {"box": b"1,2,3\n"},
            Reason.BOXES_INVALID,
            "'1,2,3' is not eight numbers and a transcript",
            id="short_box",
        ),
        pytest.param(
            {"box": b"a,1,2,1,2,2,1,2,x\n"}, Reason.BOXES_INVALID, "'a'", id="box_of_letters"
        ),
        pytest.param(
            {"box": b"1_0,1,2,1,2,2,1,2,x\n"}, Reason.BOXES_INVALID, "underscore", id="underscore"
        ),
        pytest.param(
            {"box": b"nan,1,2,1,2,2,1,2,x\n"}, Reason.BOXES_INVALID, "not finite", id="nan"
        ),
    ],
)
def test_odd_sroie(
    sroie: Callable[..., Row], files: dict[str, Any], reason: Reason, message: str
) -> None:
    row = sroie(**files)
    assert row.problem is not None
    assert row.problem[0] == reason
    assert message in row.problem[1]
    assert (row.id, row.uri.endswith("/img/X 1.jpg")) == ("X 1", True)


def parquet_rows(folder: Path, *tables: Any, labels: tuple[Label, ...] = ()) -> list[Row]:
    """Rows of Parquet files of these columns, a row group of at most two rows each."""
    from pyarrow import Table, parquet

    for part, columns in enumerate(tables):
        made = Table.from_pydict(columns) if isinstance(columns, dict) else columns
        parquet.write_table(made, folder / f"part[{part}].parquet", row_group_size=2)
    return read_rows(source("parquet", folder / "*.parquet", labels=labels))


def test_parquet(tmp_path: Path) -> None:
    tables = [
        {
            "image": [f"{part}-a.jpg", None, f"{part}-b.jpg"],
            "layout": ["kiosk", "zoo", None],
            "total": [1.5, 2.5, 3.5],
            "currency": ["EUR", "CHF", "EUR"],
            "boxes": [[{"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4, "text": "ä"}], None, None],
        }
        for part in range(2)
    ]
    rows = parquet_rows(tmp_path, *tables, labels=LABELS)
    good = [row for row in rows if row.problem is None]
    assert good == [
        Row(
            id=f"{part}-a.jpg",
            uri=f"/images/{part}-a.jpg",
            categories={"layout": "kiosk", "currency": "EUR"},
            labels={"total": 1.5},
            boxes=((1.0, 2.0, 3.0, 4.0, "ä"),),
        )
        for part in range(2)
    ]
    bad = [row for row in rows if row.problem is not None]
    assert Counter(row.problem for row in bad) == {
        (Reason.IMAGE_MISSING, "the row names no image"): 2,
        (Reason.LAYOUT_MISSING, "the receipt has no layout"): 2,
    }
    assert sorted("'zoo'" in row.source for row in bad) == [False, False, True, True]


def test_parquet_text_may_be_stored_as_bytes(tmp_path: Path) -> None:
    box = {"xmin": 1.0, "ymin": 2.0, "xmax": 3.0, "ymax": 4.0, "text": "ä".encode()}
    columns = {
        "image": [b"a.jpg", b"b.jpg"],
        "layout": ["Bäcker".encode(), b"\xff"],
        "total": [b"2.5", b"3"],
        "currency": [b"EUR", b"EUR"],
        "boxes": [[box], None],
    }
    good, bad = parquet_rows(tmp_path, columns, labels=LABELS)
    assert good == Row(
        id="a.jpg",
        uri="/images/a.jpg",
        categories={"layout": "Bäcker", "currency": "EUR"},
        labels={"total": 2.5},
        boxes=((1.0, 2.0, 3.0, 4.0, "ä"),),
    )
    assert bad.problem is not None
    assert bad.problem[0] == Reason.BAD_ROW


def test_parquet_columns_that_are_not_used_are_not_read(tmp_path: Path) -> None:
    import pyarrow as pa

    nanoseconds = pa.array([1, 2, 3], pa.timestamp("ns"))  # Python has no such time
    odd = pa.array([b"\xff" * 9] * 3)
    names = ["image", "layout", "printed_at", "thumbnail", "thumbnail"]
    columns = [["a", "b", "c"], ["x", "x", "y"], nanoseconds, odd, odd]
    rows = parquet_rows(tmp_path, pa.Table.from_arrays([*map(pa.array, columns)], names))
    assert outline(rows) == [("a", None), ("b", None), ("c", None)]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        pytest.param(
            ["image", "layout", "layout", "total"],
            "part[0].parquet has several columns called layout: ",
            id="layout_twice",
        ),
        pytest.param(
            ["image", "layout", "totl", "group"],
            "part[0].parquet has no column total; its header is image, layout, totl, group: name ",
            id="no_label",
        ),
    ],
)
def test_a_parquet_header_that_cannot_work(tmp_path: Path, names: list[str], sentence: str) -> None:
    import pyarrow as pa

    made = pa.Table.from_arrays([pa.array(["1"])] * 4, names)
    with pytest.raises(BuildError, match=re.escape(sentence)):
        parquet_rows(tmp_path, made, labels=(Label(name="total", type="int"),))


@pytest.mark.parametrize("damage", ["text", "cut_off", "empty"])
def test_broken_parquet_ends_the_build_with_a_sentence(tmp_path: Path, damage: str) -> None:
    from pyarrow import Table, parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(Table.from_pydict({"image": ["a"], "layout": ["x"]}), path)
    data = {"text": b"image,layout\na,x\n", "cut_off": path.read_bytes()[:-20], "empty": b""}
    path.write_bytes(data[damage])
    sentence = rf"^{path} can't be read as Parquet: .*[^.]: copy or write it again"
    with pytest.raises(BuildError, match=sentence):
        read_rows(source("parquet", path))


def test_a_folder_name_is_no_pattern(tmp_path: Path) -> None:
    """A folder called [ab] is read, and a folder called a is not."""
    for name in ("[ab]", "a"):
        (tmp_path / name / "kiosk").mkdir(parents=True)
        (tmp_path / name / "kiosk" / "1.jpg").write_bytes(b"")

    def check(rows: list[Row]) -> None:
        assert [row.uri for row in rows] == [str(tmp_path / "[ab]" / "kiosk" / "1.jpg")]

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(source("folder", tmp_path / "[ab]").read(pipeline), check)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("t[1].{kind}", ["t[1]"], id="a_file_of_this_name"),
        pytest.param("t[[]1].{kind}", ["t[1]"], id="escaped"),
        pytest.param("t[12].{kind}", ["t1"], id="pattern"),
        pytest.param("a [1]/u.{kind}", ["u"], id="file_in_a_folder"),
        pytest.param("a [1]/v[1].{kind}", ["v[1]"], id="odd_file_in_an_odd_folder"),
        pytest.param("a [1]/*.{kind}", ["u", "v1", "v[1]"], id="pattern_in_a_folder"),
        pytest.param("a ?1?/u.{kind}", ["u"], id="pattern_of_folders"),
    ],
)
def test_a_name_that_exists_is_no_pattern(
    tmp_path: Path, kind: str, name: str, expected: list[str]
) -> None:
    (tmp_path / "a [1]").mkdir()
    for each in ("t[1]", "t1", "a [1]/u", "a [1]/v[1]", "a [1]/v1"):
        stem = each.rpartition("/")[2]
        lines = {"csv": f"image,layout\n{stem},x\n", "jsonl": f'{{"image":"{stem}","layout":"x"}}'}
        (tmp_path / f"{each}.{kind}").write_text(lines[kind])
    rows = read_rows(source(kind, tmp_path / name.format(kind=kind)))
    assert [row.id for row in rows] == expected


def test_several_tables_are_one_source(tmp_path: Path) -> None:
    for part in range(3):
        table(tmp_path / f"{part}.jsonl", f'{{"image": "{part}", "layout": "x"}}\n')

    def check(rows: list[Row]) -> None:
        assert sorted(row.id for row in rows) == ["0", "1", "2"]

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        assert_that(source("jsonl", tmp_path / "*.jsonl").read(pipeline), check)
