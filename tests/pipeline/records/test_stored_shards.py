"""Shards that change while they are in use: the same bytes, or an error."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.records.info import load_info
from pipeline.records.stored_shards import ReplacedError, StoredShards
from schemas.file_names import COMPLETED, shard_name
from tests.support.dataset_factory import read_index, write_dataset
from tests.support.dataset_files import exchange, flip, next_tick

NAME = shard_name("train", 0)
ERRORS = (OSError, ValueError)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """32 records in four shards; records 0 and 1 of a shard have the same length."""
    return write_dataset(tmp_path / "receipts")


def shards_of(directory: Path) -> StoredShards:
    info = load_info(directory)
    return StoredShards(info, [str(directory / s.name) for s in info.split("train").shards])


def rewritten(directory: Path) -> None:
    (directory / NAME).write_bytes((directory / NAME).read_bytes())


def copied_over(directory: Path) -> None:
    shutil.copy(directory / NAME, directory / "copy")
    (directory / "copy").replace(directory / NAME)


def built_again(directory: Path) -> None:
    shutil.rmtree(directory)
    write_dataset(directory)


@pytest.mark.parametrize(
    "change",
    [
        rewritten,
        copied_over,
        built_again,
        lambda directory: (directory / NAME).chmod(0o600),
        lambda directory: os.utime(directory / NAME, (1, 1)),
        lambda directory: (directory / "link").hardlink_to(directory / NAME),
        lambda directory: (directory / COMPLETED).unlink(),
    ],
    ids=[
        "rewritten", "copied over", "built again", "rights", "time", "hard link", "COMPLETED gone",
    ],
)  # fmt: skip
def test_the_same_bytes_are_read_on(directory: Path, change: Callable[[Path], None]):
    shards, whole = shards_of(directory), (directory / NAME).read_bytes()
    assert shards.open(0).read(len(whole), 0) == whole
    next_tick()
    change(directory)
    for _ in range(3):
        assert shards.open(0).read(len(whole), 0) == whole


def flip_unseen(directory: Path) -> None:
    status = (directory / NAME).stat()
    flip(directory / NAME, 1000)
    os.utime(directory / NAME, ns=(status.st_atime_ns, status.st_mtime_ns))


def exchange_records(directory: Path) -> None:
    index = read_index(directory, 0)
    exchange(directory / NAME, index, *equal_lengths(index.length.tolist()))


def equal_lengths(lengths: list[int]) -> tuple[int, int]:
    """Returns the first two rows of equal length."""
    return next((lengths.index(n), row) for row, n in enumerate(lengths) if n in lengths[:row])


def exchange_shards(directory: Path) -> None:
    other = shard_name("train", 1)
    (directory / NAME).rename(directory / "other")
    (directory / other).rename(directory / NAME)
    (directory / "other").rename(directory / other)


def built_anew(directory: Path) -> None:
    shutil.rmtree(directory)
    write_dataset(directory, counts={"alpha": 31, "omega": 1})


def delete_linked(directory: Path) -> None:
    """Deletes a shard as `forget` does, where a backup holds hard links."""
    (directory.parent / "backup").hardlink_to(directory / NAME)
    (directory / NAME).unlink()


CHANGES = {
    "flipped, time restored": flip_unseen,
    "records exchanged, time restored": exchange_records,
    "shards exchanged": exchange_shards,
    "built anew": built_anew,
    "cut off": lambda directory: os.truncate(directory / NAME, 1000),
    "empty": lambda directory: os.truncate(directory / NAME, 0),
    "longer": lambda directory: (directory / NAME).open("ab").write(b"x"),
    "deleted": lambda directory: (directory / NAME).unlink(),
    "deleted, hard link left": delete_linked,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_other_bytes_are_an_error(directory: Path, change: Callable[[Path], None]):
    shards = shards_of(directory)
    shards.open(0)
    next_tick()
    change(directory)
    for _ in range(3):  # and it stays one
        with pytest.raises(ERRORS):
            shards.open(0)


def test_a_directory_that_was_renamed_is_read_from_where_it_is_open(directory: Path):
    shards, whole = shards_of(directory), (directory / NAME).read_bytes()
    shards.open(0)
    directory.rename(directory.with_name("other"))
    assert shards.open(0).read(len(whole), 0) == whole
    write_dataset(directory, counts={"alpha": 31, "omega": 1})
    assert shards.open(0).read(len(whole), 0) == whole
    with pytest.raises(ReplacedError, match="holds another dataset by now"):
        shards.open(1)


def test_the_right_file_may_come_back(directory: Path):
    shards, whole = shards_of(directory), (directory / NAME).read_bytes()
    shards.open(0)
    next_tick()
    flip(directory / NAME, 1000)
    with pytest.raises(ValueError, match="the file was changed, and is not the one of the build"):
        shards.open(0)
    (directory / NAME).write_bytes(whole)
    assert shards.open(0).read(len(whole), 0) == whole


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (built_anew, "{} holds another dataset by now, built in its place: make the dataset again"),
        (
            lambda directory: (directory / COMPLETED).unlink(),
            "{} holds no finished dataset any more (no file COMPLETED): if it was moved, name",
        ),
        (
            lambda directory: flip(directory / COMPLETED, 60),
            f"{{}}/{COMPLETED}: not a tillroll-versions file",
        ),
    ],
    ids=["built anew", "being built", "damaged"],
)
def test_a_shard_is_not_opened_for_another_version(
    directory: Path, change: Callable[[Path], None], sentence: str
):
    shards = shards_of(directory)
    change(directory)
    with pytest.raises(ReplacedError, match=f"^{re.escape(sentence.format(directory))}"):
        shards.open(0)
