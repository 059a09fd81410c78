"""Pixels by record number: the right ones, verified as often as asked for, and named errors."""

import itertools
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.records import open_file
from pipeline.records.info import NEWEST, load_info
from pipeline.records.pixel_reader import PixelReader, UnreadableRecordError, Verify
from pipeline.records.read_failure import EXCLUDE
from pipeline.records.sequence import Records
from pipeline.records.table import RecordTable
from schemas.file_names import COMPLETED, shard_name
from schemas.versions import Versions
from tests.support.dataset_factory import HEIGHT, WIDTH, exclude, read_index, write_dataset
from tests.support.dataset_files import FAULTS, damaged, exchange, flip, next_tick

SHAPE = (HEIGHT, WIDTH, 3)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 records of pixels in four shards; tests leave it as it was."""
    return write_dataset(tmp_path_factory.mktemp("pixels") / "receipts", raw=True)


def reader_of(
    directory: Path, verify: Verify = "first", shape: tuple[int, int, int] = SHAPE
) -> PixelReader:
    """A reader of the records in shard order."""
    info = load_info(directory)
    table = RecordTable.in_shard_order(info, "train")
    return PixelReader.load(info, "train", table, categories=["layout"], shape=shape, verify=verify)


def assert_reads(reader: PixelReader, records: Records, numbers: Sequence[int]) -> None:
    pixels, categories = reader.read(np.array(numbers))
    assert pixels.shape == (len(numbers), *SHAPE)
    assert list(categories) == ["layout"]
    expected = [records[number] for number in numbers]
    np.testing.assert_array_equal(pixels, [each["image/encoded"] for each in expected])
    np.testing.assert_array_equal(
        categories["layout"], [each["receipt/layout_id"] for each in expected], strict=True
    )


@pytest.mark.parametrize("verify", ["first", "always", "never"])
def test_records_are_those_of_the_general_sequence(tmp_path: Path, directory: Path, verify: Verify):
    """In any order, again, and with some records left out."""
    copy = Path(shutil.copytree(directory, tmp_path / "receipts"))
    exclude(copy, {1: [0, 6], 2: [3, 4, 5]})
    reader, records = reader_of(copy, verify), Records(copy, "train")
    assert len(records) == 27
    order = np.random.default_rng(0).permutation(27).tolist()
    for _ in range(2):
        assert_reads(reader, records, order)
    assert_reads(reader, records, [5, 5, 26, 0])


def test_a_table_by_layout_numbers_records_otherwise(directory: Path):
    info = load_info(directory)
    table = RecordTable.by_category(info, "train", "layout")
    reader = PixelReader.load(
        info, "train", table, categories=["layout"], shape=SHAPE, verify="first"
    )
    pixels, categories = reader.read(np.arange(32))
    assert (np.diff(categories["layout"]) >= 0).all()
    records = Records(directory, "train")
    expected = [records[position]["image/encoded"] for position in table.order]
    np.testing.assert_array_equal(pixels, expected)


def test_threads_share_a_reader(directory: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where files are closed again and again, as there may be too many of them."""
    monkeypatch.setattr(open_file, "_MOST_OPEN", 2)
    reader, records = reader_of(directory), Records(directory, "train")
    orders = [np.random.default_rng(seed).permutation(32) for seed in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for order, (pixels, _) in zip(orders, pool.map(reader.read, orders), strict=True):
            expected = [records[number]["image/encoded"] for number in order]
            np.testing.assert_array_equal(pixels, expected)


CHANGED = "the file was changed, and is not the one of the build any more"
REASONS = {
    "payload": "checksum of the record's bytes is wrong",
    "checksum": "checksum of the record's bytes is wrong",
    "length": "checksum of the record's length is wrong",
    "checksum of length": "checksum of the record's length is wrong",
    "missing file": "No such file or directory",
}


@pytest.mark.parametrize("read_before", [False, True], ids=["first", "later"])
def test_an_error_names_the_record(directory: Path, read_before: bool):
    index, path = read_index(directory, 2), directory / shard_name("train", 2)
    for fault, position in itertools.product((*FAULTS, "missing file"), (0, 3, 7)):
        reader = reader_of(directory)
        if read_before:
            reader.read(np.arange(32))
        next_tick()
        offset, length = int(index.offset[position]), int(index.length[position])
        with damaged(path, fault, offset, length), pytest.raises(UnreadableRecordError) as raised:
            reader.read(np.array([0, 31, 16 + position]))
        is_changed = read_before and fault != "missing file"
        reason = CHANGED if is_changed else REASONS.get(fault, "file ends inside a record")
        assert str(raised.value) == (
            f"{path}: record {index.id(position)} at byte {offset} cannot be read: {reason}; "
            f"{EXCLUDE}"
        ), fault
        assert_reads(reader, Records(directory, "train"), range(32))


def test_what_was_forgotten_is_not_read_any_longer(tmp_path: Path, directory: Path):
    """Although the file is open, so that the system keeps its bytes."""
    copy = Path(shutil.copytree(directory, tmp_path / "receipts"))
    reader = reader_of(copy)
    reader.read(np.arange(32))
    shard = load_info(copy).split("train").shards[2]
    for name in shard.files:
        (copy / name).unlink()
    ended = Versions.first(b"").adding(2, b"another").ending([1])
    (copy / COMPLETED).write_bytes(ended.to_bytes())
    with pytest.raises(UnreadableRecordError) as raised:
        reader.read(np.array([16]))
    assert str(raised.value) == (
        f"{copy}: version 1 has ended, as receipts in it had to be forgotten: {NEWEST}"
    )


def test_without_an_index_that_can_be_read_the_place_is_named(tmp_path: Path, directory: Path):
    copy = Path(shutil.copytree(directory, tmp_path / "receipts"))
    reader = reader_of(copy)
    shard = load_info(copy).split("train").shards[2]
    (copy / shard.name).unlink()
    (copy / shard.index_name).write_bytes(b"nothing")
    with pytest.raises(UnreadableRecordError, match="the record at byte 0 cannot be read: No such"):
        reader.read(np.array([16]))


@pytest.mark.parametrize(
    ("verify", "is_noticed"), [("first", True), ("always", True), ("never", False)]
)
def test_records_are_verified_when_they_are_first_read(
    tmp_path: Path, directory: Path, verify: Verify, is_noticed: bool
):
    copy = Path(shutil.copytree(directory, tmp_path / "receipts"))
    reader = reader_of(copy, verify)
    whole, _ = reader_of(copy).read(np.array([1]))
    flip(copy / shard_name("train", 0), int(read_index(copy, 0).offset[1]) + 1000)
    if is_noticed:
        with pytest.raises(UnreadableRecordError, match="checksum of the record's bytes is wrong"):
            reader.read(np.array([1]))
    else:
        pixels, _ = reader.read(np.array([1]))
        assert (pixels != whole).sum() == 1


def test_records_of_another_layout_than_in_the_index_are_refused(tmp_path: Path):
    """Every record is whole, and as long as the index says."""
    directory = write_dataset(tmp_path / "data", counts={"a": 4, "b": 4}, shards=1, raw=True)
    exchange(directory / shard_name("train", 0), read_index(directory, 0), 0, 7)
    records = Records(directory, "train")
    assert [records[number]["receipt/layout"] for number in (0, 7)] == ["b", "a"]
    for verify in ("first", "always", "never"):
        reader = reader_of(directory, verify)
        for number in (0, 7):
            with pytest.raises(UnreadableRecordError, match="another layout than the index says"):
                reader.read(np.array([number]))
        assert_reads(reader, records, range(1, 7))


def test_pixels_of_another_size_are_an_error(directory: Path):
    with pytest.raises(UnreadableRecordError) as raised:
        reader_of(directory, shape=(HEIGHT, WIDTH, 1)).read(np.array([0]))
    cause: Any = raised.value.__cause__
    assert str(cause) == (
        f"record holds {HEIGHT * WIDTH * 3} bytes of pixels, {HEIGHT * WIDTH} expected"
    )
