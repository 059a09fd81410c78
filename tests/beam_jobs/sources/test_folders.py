"""Folders of this machine: every file once, whatever links there are, and no system files."""

import os
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.sources.folders import is_system_file, local_files_below


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def below(root: Path) -> list[str]:
    return [os.path.relpath(path, root) for path in local_files_below(str(root))]


def test_folders_that_link_to_each_other_are_walked_once(tmp_path: Path) -> None:
    folders = [f"shop{number}" for number in range(8)]
    make(tmp_path, *(f"{folder}/a.jpg" for folder in folders))
    for folder in folders:
        for other in folders:
            if other != folder:
                (tmp_path / folder / f"to-{other}").symlink_to(tmp_path / other)
    assert sorted(below(tmp_path)) == [f"{folder}/a.jpg" for folder in folders]


@pytest.mark.parametrize("link", ["aaa", "zzz"], ids=["before", "after"])
def test_a_folder_comes_under_its_own_name_rather_than_a_links(tmp_path: Path, link: str) -> None:
    make(tmp_path, "kiosk/a.jpg", "kiosk/deep/b.jpg")
    (tmp_path / link).symlink_to(tmp_path / "kiosk")
    (tmp_path / f"{link}-deep").symlink_to(tmp_path / "kiosk" / "deep")
    assert sorted(below(tmp_path)) == ["kiosk/a.jpg", "kiosk/deep/b.jpg"]


def test_of_two_links_to_a_folder_the_first_by_name_counts(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/a.jpg")
    root = tmp_path / "photos"
    root.mkdir()
    for name in ("c", "a", "b"):
        (root / name).symlink_to(tmp_path / "elsewhere")
    assert below(root) == ["a/a.jpg"]


def test_a_folder_that_is_itself_a_link(tmp_path: Path) -> None:
    make(tmp_path, "photos/kiosk/a.jpg")
    (tmp_path / "link").symlink_to(tmp_path / "photos")
    (tmp_path / "photos" / "kiosk" / "back").symlink_to(tmp_path / "link")
    assert below(tmp_path / "link") == ["kiosk/a.jpg"]


def test_broken_links_and_odd_files_are_files(tmp_path: Path) -> None:
    make(tmp_path, "kiosk/a.jpg")
    kiosk = tmp_path / "kiosk"
    (kiosk / "gone").symlink_to(tmp_path / "nowhere")
    (kiosk / "itself").symlink_to(kiosk / "itself")
    os.mkfifo(kiosk / "pipe")
    assert sorted(below(tmp_path)) == [
        "kiosk/a.jpg",
        "kiosk/gone",
        "kiosk/itself",
        "kiosk/pipe",
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("kiosk/a.jpg", False),
        ("kiosk/a", False),
        ("a.b/c.d", False),
        ("kiosk/_a.jpg", False),
        ("kiosk/thumbs.db.jpg", False),
        ("kiosk/.DS_Store", True),
        ("kiosk/._a.jpg", True),
        (".DS_Store", True),
        (".thumbnails/a.jpg", True),
        ("kiosk/.Trash-1000/files/a.jpg", True),
        ("kiosk/Thumbs.db", True),
        ("THUMBS.DB", True),
        ("kiosk/desktop.ini", True),
        ("kiosk/", True),
        ("", True),
    ],
)
def test_system_files(path: str, expected: bool) -> None:
    assert is_system_file(path) == expected
