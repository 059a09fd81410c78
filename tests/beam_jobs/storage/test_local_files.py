"""Files of this machine: names are taken literally, and what has its name is on the disk."""

import errno
import os
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.storage import files

ODD = "x[1]*?"  # as a pattern it matches OTHER, not itself
OTHER = "x1aab"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A folder that looks like a pattern, and one that the pattern matches; a file in each."""
    odd, other = tmp_path / ODD, tmp_path / OTHER
    for folder in (odd, other):
        (folder / "below").mkdir(parents=True)
        (folder / "below" / "file").write_text(folder.name)
    return odd, other


def test_a_deleted_file_is_the_one_that_was_named(folders: tuple[Path, Path]) -> None:
    odd, other = folders
    files.delete([str(odd / "below" / "file")])
    assert not (odd / "below" / "file").exists()
    assert (other / "below" / "file").read_text() == OTHER
    files.delete([str(odd / "below" / "file")])  # as by a second publication: it is gone


def test_a_deleted_tree_is_the_one_that_was_named(folders: tuple[Path, Path]) -> None:
    odd, other = folders
    files.delete_tree(str(odd))
    assert not odd.exists()
    assert (other / "below" / "file").read_text() == OTHER
    files.delete_tree(str(odd))


def test_a_deleted_link_leaves_what_it_points_to(folders: tuple[Path, Path]) -> None:
    odd, other = folders
    (odd / "link").symlink_to(other)
    files.delete([str(odd / "link")])
    assert sorted(path.name for path in odd.iterdir()) == ["below"]
    assert (other / "below" / "file").exists()


def test_listing_a_folder_looks_at_no_other(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd, _ = folders
    walked = []
    walk = os.walk

    def watched(top: str, **options: bool) -> object:
        walked.append(top)
        return walk(top, **options)

    monkeypatch.setattr(os, "walk", watched)
    assert files.list_below(f"{odd}/") == [str(odd / "below" / "file")]
    assert [path.rstrip("/") for path in walked] == [str(odd)]
    assert files.list_below(str(odd / "no-such-folder")) == []


def test_a_file_gets_its_name_once_its_bytes_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    fsync, replace = os.fsync, Path.replace

    def watched_fsync(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append(("on disk", path.name, path.stat().st_size if path.is_file() else None))

    def watched_replace(source: Path, target: str) -> None:
        replace(source, target)
        events.append(("named", Path(target).name, Path(target).stat().st_size))

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "replace", watched_replace)
    files.write(str(tmp_path / "a"), b"data")
    [(first, temporary, size), named] = events
    assert (first, temporary[:3], size) == ("on disk", ".a.", 4)
    assert named == ("named", "a", 4)

    events.clear()
    (tmp_path / "b").touch()
    moved = tmp_path / "moved"
    files.move([(str(tmp_path / name), str(moved / name)) for name in "ab"])
    # COMPLETED, which is moved last, must not survive a loss of power that undoes earlier moves.
    assert events == [("named", "a", 4), ("named", "b", 0), ("on disk", "moved", None)]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_file_system_that_syncs_no_folders_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    files.write(str(tmp_path / "a"), b"data")

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    move = [(str(tmp_path / "a"), str(tmp_path / "b"))]
    if number == errno.EINVAL:
        files.move(move)
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            files.move(move)
    assert (tmp_path / "b").read_bytes() == b"data"


def test_a_file_that_could_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "name").write_text("old")

    def write_half() -> None:
        with files.create(str(tmp_path / "name")) as file:
            file.write(b"half")
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        write_half()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("name", "old")]
