"""Parquet tables: every row is read, good or bad, and none is lost."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.rejection import Reason
from beam_jobs.sources.row import Row
from schemas.receipt import Label
from tests.support.sources import LABELS, outline, read_rows, source


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


HOLDS_IMAGES = "seems to hold images: write the images to files, and name these in the column"


def odd_columns() -> dict[str, tuple[Any, str]]:
    import pyarrow as pa

    photo = b"\x89PNG" + bytes(10_000)
    text, struct = "must be text or numbers: write it anew as one of these", pa.array([{"a": 1}])
    python = "which Python has not: cast it to text (string), or to int64"
    return {
        "image_of_hugging_face": (pa.array([{"bytes": photo, "path": "1.png"}]), HOLDS_IMAGES),
        "image_as_bytes": (pa.array([photo]), HOLDS_IMAGES),
        "image_as_list_of_bytes": (pa.array([[photo]]), HOLDS_IMAGES),
        "image_as_data_uri": (pa.array(["data:image/png;base64," + "x" * 10_000]), HOLDS_IMAGES),
        "image_list": (pa.array([["1.jpg", "2.jpg"]]), text),
        "id_struct": (struct, text),
        "group_bool": (pa.array([True]), text),
        "layout_list": (pa.array([[7]]), text),
        "layout_in_nanoseconds": (pa.array([1], pa.timestamp("ns")), python),
        "paid_bool": (pa.array([False]), text),
        "paid_struct": (struct, text),
        "paid_in_nanoseconds": (pa.array([1], pa.timestamp("ns")), python),
        "paid_time": (pa.array([1], pa.time64("ns")), python),
        "paid_duration": (pa.array([1], pa.duration("s")), python),
    }


@pytest.mark.parametrize("case", odd_columns())
def test_a_column_that_is_no_text_is_refused_before_a_row_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    import pyarrow as pa

    column, sentence = odd_columns()[case]
    name = case.partition("_")[0]
    text = pa.array(["a"])
    columns = {"image": text, "id": text, "layout": text, "group": text, "paid": text, name: column}
    monkeypatch.setattr("beam_jobs.sources.source.read_rows", None)
    with pytest.raises(BuildError) as caught:
        parquet_rows(
            tmp_path,
            pa.table({**columns, "unused": pa.array([{"bytes": bytes(9)}])}),
            labels=(Label(name="paid", type="string"),),
        )
    message = str(caught.value).partition(" [while running")[0]
    assert f"part[0].parquet: column {name} " in message
    assert message.endswith(sentence)
    assert len(message) < 400


def test_whole_numbers_are_one_name_whatever_their_type(tmp_path: Path) -> None:
    from decimal import Decimal

    tables = [
        {"image": [f"{part}"], "layout": [number], "group": [number], "id": [number]}
        for part, number in enumerate((7, 7.0, "7", Decimal("7.00")))
    ]
    rows = parquet_rows(tmp_path, *tables)
    assert [(row.id, row.group, row.categories) for row in rows] == [
        ("7", "7", {"layout": "7"})
    ] * 4


def test_dates_and_times_are_texts(tmp_path: Path) -> None:
    import datetime

    import pyarrow as pa

    day, time = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 30)
    table = pa.table(
        {
            "image": ["a"],
            "layout": pa.array([day], pa.date32()),
            "when": pa.array([time], pa.timestamp("us")),
        }
    )
    [row] = parquet_rows(tmp_path, table, labels=(Label(name="when", type="string"),))
    assert row.categories == {"layout": "2024-02-29"}
    assert row.labels == {"when": "2024-02-29 12:30:00"}
