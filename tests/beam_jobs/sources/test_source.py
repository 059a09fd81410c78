"""Sources: which tables and folders a path names, and which images their rows may name."""

from pathlib import Path

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
