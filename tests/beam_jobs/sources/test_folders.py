"""Folders: every file is a row once, whatever links there are, and no system file is one."""

import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

import beam_jobs.sources.folders
from beam_jobs.errors import BuildError
from beam_jobs.rejection import Reason
from beam_jobs.sources.folders import folder_row, folder_rows, is_system_file, local_files_below
from beam_jobs.sources.row import Row


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
    make(tmp_path, "photos/kiosk/a.jpg", "elsewhere/b.jpg", "elsewhere/deep/c.jpg")
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
    make(tmp_path, *names)
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


@pytest.mark.parametrize(
    "name",
    [
        *("shop/@eaDir/1.jpg/SYNOPHOTO_THUMB_XL.jpg", "shop/1.jpg@SynoEAStream", "#recycle/1.jpg"),
        *("#snapshot/@GMT-2024/1.jpg", "shop/.@__thumb/1.jpg", "shop/@__thumb/1.jpg"),
        *("@Recycle/1.jpg", "@Recently-Snapshot/1.jpg", "$RECYCLE.BIN/S-1/$RAB12.jpg"),
        *("System Volume Information/IndexerVolumeGuid", "RECYCLER/1.jpg", "__MACOSX/shop/1.jpg"),
        *("lost+found/1.jpg", "LOST.DIR/1", "shop/Icon\r", "shop/ehthumbs.db", "shop/Picasa.ini"),
        *("~snapshot/hourly.0/shop/1.jpg", ".Trashes/1.jpg", ".stversions/1.jpg", "shop_$folder$"),
    ],
)
def test_what_systems_put_into_folders_is_no_receipt(tmp_path: Path, name: str) -> None:
    assert is_system_file(name)
    make(tmp_path, name, "shop/1.jpg", "Eadir/@home/#1.jpg", "recycle/icon.jpg")
    skipped: list[str] = []
    paths = local_files_below(str(tmp_path), on_skipped=skipped.append)
    found = sorted(os.path.relpath(path, tmp_path) for path in paths)
    assert found == ["Eadir/@home/#1.jpg", "recycle/icon.jpg", "shop/1.jpg"]
    assert len(skipped) == 1


def test_a_system_folder_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "shop/1.jpg", "lost+found/1.jpg")
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("lost+found"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert below(tmp_path) == ["shop/1.jpg"]


@pytest.mark.parametrize("name", [b"caf\x82/1.jpg", b"shop/re\x87u.jpg"])
def test_a_name_that_is_not_utf8_is_to_be_changed(tmp_path: Path, name: bytes) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.parent.mkdir()
    path.write_bytes(b"x")
    [row] = folder_rows(str(tmp_path), folder=str(tmp_path))
    sentence = "the name of the file is not UTF-8: rename it, for example with convmv"
    assert row.problem == (Reason.BAD_ROW, sentence)
    assert row.id == os.fsdecode(name).encode(errors="backslashreplace").decode()


def test_folders_of_one_name_in_two_forms_are_one_layout(tmp_path: Path) -> None:
    names = [unicodedata.normalize(form, "Café Müller") for form in ("NFC", "NFD")]
    make(tmp_path, f"{names[0]}/1.jpg", f"{names[1]}/2.jpg")
    rows = sorted(folder_rows(str(tmp_path), folder=str(tmp_path)), key=lambda row: row.id)
    assert [row.categories["layout"] for row in rows] == [names[0]] * 2
    assert [row.id for row in rows] == [f"{names[0]}/1.jpg", f"{names[0]}/2.jpg"]
    assert all(Path(row.uri).exists() for row in rows)


def test_white_space_belongs_to_the_name_of_a_file(tmp_path: Path) -> None:
    make(tmp_path, "shop/ 1.jpg ", "shop/1.jpg")
    rows = folder_rows(str(tmp_path), folder=str(tmp_path))
    assert sorted(row.id for row in rows) == ["shop/ 1.jpg ", "shop/1.jpg"]
