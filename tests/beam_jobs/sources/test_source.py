"""Sources: which tables and folders a path names, and which images their rows may name."""

import math
import unicodedata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.rejection import Reason
from tests.support.sources import read_rows, source, write_table


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


def test_a_folder_name_is_no_pattern(tmp_path: Path) -> None:
    """A folder called [ab] is read, and a folder called a is not."""
    for name in ("[ab]", "a"):
        (tmp_path / name / "kiosk").mkdir(parents=True)
        (tmp_path / name / "kiosk" / "1.jpg").write_bytes(b"")
    rows = read_rows(source("folder", tmp_path / "[ab]"))
    assert [row.uri for row in rows] == [str(tmp_path / "[ab]" / "kiosk" / "1.jpg")]


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
        write_table(tmp_path / f"{part}.jsonl", f'{{"image": "{part}", "layout": "x"}}\n')
    rows = read_rows(source("jsonl", tmp_path / "*.jsonl"))
    assert [row.id for row in rows] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("values", "reason", "message"),
    [
        ({"image": math.nan}, Reason.IMAGE_MISSING, "the row names no image"),
        ({"image": "NaN"}, Reason.IMAGE_MISSING, "the row names no image"),
        ({"image": ["1.jpg", "2.jpg"]}, Reason.BAD_ROW, "the image must be a name, got ['1.jpg', "),
        ({"image": {"path": "1.jpg"}}, Reason.BAD_ROW, "the image must be a name, got {'path': "),
        ({"image": False}, Reason.BAD_ROW, "the image must be a name, got False"),
        ({"image": "data:image/png;base64,iVBOR"}, Reason.BAD_ROW, "the image must be the name of"),
        ({"image": "x" * 10**6}, Reason.BAD_ROW, "the image must have at most 4,096 characters"),
        ({"image": "https://h/1.jpg"}, Reason.BAD_ROW, "'https://h/1.jpg' is on no file system"),
        ({"id": math.nan}, Reason.ID_MISSING, "the row's id is empty"),
        ({"id": "NULL"}, Reason.ID_MISSING, "the row's id is empty"),
        ({"id": ["a"]}, Reason.BAD_ROW, "the id must be a name, got ['a']"),
        ({"id": True}, Reason.BAD_ROW, "the id must be a name, got True"),
        ({"id": "x" * 10**6}, Reason.BAD_ROW, "the id must have at most 4,096 characters, got 'xx"),
        ({"group": ["a", "b"]}, Reason.LABEL_TYPE, "the group must be a name, got ['a', 'b']"),
        ({"layout": "null"}, Reason.LAYOUT_MISSING, "the receipt has no layout"),
    ],
)
def test_values_that_name_nothing(values: dict[str, Any], reason: Reason, message: str) -> None:
    row = {"image": "a.jpg", "layout": "x", "id": "i", **values}
    found = source("jsonl").table_row(row, str(row))
    assert found.problem is not None
    assert found.problem[0] == reason
    assert found.problem[1].startswith(message)
    assert (found.id == "i") == ("id" not in values)
    assert len(found.to_bytes()) < 3000


def test_a_word_for_nothing_is_no_group() -> None:
    rows = [
        source("csv").table_row({"image": "a", "layout": "x", "group": word}, "")
        for word in ("NULL", "None", "nan", "N/A", "a")
    ]
    assert [row.group for row in rows] == ["", "", "", "", "a"]


@pytest.mark.parametrize("raw", [1005, 1005.0, "1005", "1005.0"])
def test_a_whole_number_is_one_id_and_one_group(raw: Any) -> None:
    row = source("csv").table_row({"image": "a", "layout": "x", "id": raw, "group": raw}, "")
    assert (row.id, row.group) == ("1005", "1005")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_an_image_is_named_as_its_file_and_its_receipt_in_one_form(form: str) -> None:
    name = unicodedata.normalize(form, "reçu.jpg")
    row = source("jsonl").table_row({"image": f" {name} ", "layout": "x"}, "")
    assert (row.id, row.uri) == (unicodedata.normalize("NFC", name), f"/images/{name}")


def test_an_image_root_may_have_another_form_than_its_images() -> None:
    root, name = (unicodedata.normalize(form, "/reçus") for form in ("NFC", "NFD"))
    confined = source("jsonl", image_root=root, confine_images=True)
    row = confined.table_row({"image": f"{name}/a.jpg", "layout": "x"}, "")
    assert (row.uri, row.problem) == (f"{name}/a.jpg", None)


def test_a_file_address_is_a_local_file() -> None:
    row = source("jsonl").table_row({"image": "file:///in/a%20b.jpg", "layout": "x"}, "")
    assert (row.uri, row.problem) == ("/in/a b.jpg", None)
