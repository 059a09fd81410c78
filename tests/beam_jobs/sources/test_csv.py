"""CSV tables: every line becomes a row, good or bad, and none is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.rejection import Reason
from beam_jobs.sources.row import Row
from tests.support.sources import LABELS, outline, read_rows, source, write_table


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_csv(tmp_path: Path, name: str) -> None:
    file = write_table(
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
    assert outline(source("csv").csv_rows(write_table(tmp_path / "t.csv", text))) == rows


def test_a_bad_csv_row_says_where_and_why(tmp_path: Path) -> None:
    file = write_table(tmp_path / "t.csv", 'image,layout\na,x\nb,"x"y\n')
    *_, bad = source("csv").csv_rows(file)
    assert bad.problem is not None
    assert bad.problem[1].startswith(f"{file.path}, line ")
    assert "',' expected after '\"'" in bad.problem[1]
    [wide] = source("csv").csv_rows(write_table(tmp_path / "u.csv", "image,layout\na,x,y\n"))
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
    file = write_table(tmp_path / "t.csv", text)
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
    file = write_table(tmp_path / "t.csv", f"{header}\n{header}\n")
    with pytest.raises(BuildError) as caught:
        list(source("csv").csv_rows(file))
    assert str(caught.value) == (
        f"{file.path} has several columns called {names}: give every column that is used its own "
        "name"
    )


def test_columns_that_are_not_used_may_share_a_name(tmp_path: Path) -> None:
    file = write_table(tmp_path / "t.csv", "image,layout,,,x,x\na,kiosk,1,2,3,4\n")
    assert outline(source("csv").csv_rows(file)) == [("a", None)]


def test_columns_may_have_other_names(tmp_path: Path) -> None:
    columns = {"image": "file", "id": "nr", "layout": "shop", "group": "user", "boxes": "lines"}
    file = write_table(
        tmp_path / "t.csv", "file,nr,shop,user,lines,layout\na,7,kiosk,u,[],ignored\n"
    )
    [row] = source("csv", columns=columns).csv_rows(file)
    assert row == Row(id="7", uri="/images/a", group="u", categories={"layout": "kiosk"})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_table_in_utf16_is_said_to_be_one(tmp_path: Path, kind: Any, encoding: str) -> None:
    text = {"csv": "image,layout\na,x\n", "jsonl": '{"image": "a", "layout": "x"}\n'}[kind]
    path = tmp_path / f"t.{kind}"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(BuildError) as caught:
        read_rows(source(kind, path))
    assert f"{path} is not UTF-8 but UTF-16: save it as UTF-8" in str(caught.value)


def test_quotes_as_spark_writes_them_are_named(tmp_path: Path) -> None:
    line = r'a,"[{\"xmin\": 1, \"text\": \"A, B\"}]"'
    [bad] = source("csv").csv_rows(write_table(tmp_path / "t.csv", f"image,layout\n{line}\n"))
    assert bad.problem is not None
    assert bad.problem[0] == Reason.BAD_ROW
    assert bad.problem[1].endswith('write quotes as "", in Spark by .option("escape", "\\"")')


def test_a_header_of_a_megabyte_is_quoted_in_part(tmp_path: Path) -> None:
    file = write_table(tmp_path / "t.csv", ",".join(["column"] * 10**5) + "\na\n")
    with pytest.raises(BuildError) as caught:
        list(source("csv").csv_rows(file))
    assert "has no column image, layout; its header is column, column, " in str(caught.value)
    assert len(str(caught.value)) < 1500
