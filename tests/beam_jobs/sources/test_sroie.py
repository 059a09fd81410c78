"""SROIE folders: an image, its boxes and its key become a row, good or bad."""

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from apache_beam.io.filesystem import FileMetadata

from beam_jobs.rejection import Reason
from beam_jobs.sources.row import Row
from beam_jobs.sources.sroie import sroie_row
from schemas.receipt import Label
from tests.support.sources import read_rows, source

GONE = "does not exist: a SROIE folder holds img/X.jpg, box/X.csv and key/X.json"


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
        return sroie_row(FileMetadata(str(image), 0), folder=str(tmp_path), labels=labels)

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
        pytest.param({"key": None}, Reason.BAD_ROW, f"/key/X 1.json {GONE}", id="no_key"),
        pytest.param({"key": b"{"}, Reason.BAD_ROW, "/key/X 1.json: ", id="broken_key"),
        pytest.param({"key": b"[]"}, Reason.BAD_ROW, "not a JSON object", id="key_is_a_list"),
        pytest.param(
            {"key": b'{"company": "a", "company": "b"}'},
            Reason.BAD_ROW,
            "the key 'company' comes twice",
            id="company_twice",
        ),
        pytest.param({"key": b"{}"}, Reason.LAYOUT_MISSING, "has no layout", id="no_company"),
        pytest.param({"box": None}, Reason.BOXES_INVALID, f"/box/X 1.csv {GONE}", id="no_boxes"),
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


def test_system_files_of_a_sroie_folder_add_no_rows(tmp_path: Path) -> None:
    for folder in ("img", "box", "key"):
        (tmp_path / folder).mkdir()
    for name in (".DS_Store", "Thumbs.db", "X.jpg"):
        (tmp_path / "img" / name).write_bytes(b"x")
    assert [row.id for row in read_rows(source("sroie", tmp_path))] == ["X"]


@pytest.mark.parametrize(
    "character", ["\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_of_sroie_ends_at_a_line_feed_alone(
    sroie: Callable[..., Row], character: str, end: str
) -> None:
    """OCR engines write form feeds and the like into a line."""
    lines = [f"1,1,2,1,2,2,1,2,TOTAL{character}5.00", f"1,3,2,3,2,4,1,4,THANKS{character}"]
    row = sroie(box=(end.join(lines) + end).encode())
    assert [box[4] for box in row.boxes] == [f"TOTAL{character}5.00", "THANKS"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PLEASE WAIT\x85 OK", "PLEASE WAIT… OK"),
        (b"TOTAL \x80 5,00", "TOTAL € 5,00"),
        (b"D\x92ARTAGNAN", "D’ARTAGNAN"),
        (b"CAF\xc9", "CAFÉ"),
        (b"CAF\xc9 \x81", "CAFÉ \x81"),  # Windows-1252 has no such byte
        ("CAFÉ €".encode(), "CAFÉ €"),
    ],
)
def test_annotations_of_windows(sroie: Callable[..., Row], data: bytes, text: str) -> None:
    row = sroie(key=b'{"company": "' + data + b'"}', box=b"1,1,2,1,2,2,1,2," + data + b"\n")
    assert [box[4] for box in row.boxes] == [text]
    assert row.categories == {"layout": text.upper()}


def test_annotations_may_be_named_in_another_form(tmp_path: Path) -> None:
    nfc, nfd = (unicodedata.normalize(form, "reçu") for form in ("NFC", "NFD"))
    for folder, name, data in (
        ("img", f"{nfd}.jpg", b"x"),
        ("box", f"{nfc}.csv", b"1,1,2,1,2,2,1,2,a\n"),
        ("key", f"{nfc}.json", b'{"company": "Kiosk"}'),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(data)
    [row] = read_rows(source("sroie", tmp_path))
    assert (row.id, row.uri) == (nfc, str(tmp_path / "img" / f"{nfd}.jpg"))
    assert (row.problem, row.boxes) == (None, ((1.0, 1.0, 2.0, 2.0, "a"),))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"box": b"x" * 10**6}, Reason.BOXES_INVALID),
        ({"box": b"x" * 10**6 + b",1,2,1,2,2,1,2,a"}, Reason.BOXES_INVALID),
        ({"key": b'{"company": "' + b"x" * 10**6 + b'"}'}, Reason.LABEL_TYPE),
        ({"key": b'{"company": ["a"]}'}, Reason.LABEL_TYPE),
    ],
    ids=["line", "number", "company", "companies"],
)
def test_annotations_of_a_megabyte_are_quoted_in_part(
    sroie: Callable[..., Row], files: dict[str, bytes], reason: Reason
) -> None:
    row = sroie(**files)
    assert row.problem is not None
    assert row.problem[0] == reason
    assert len(row.problem[1]) < 500
    assert len(row.to_bytes()) < 70_000
