"""Shards in memory: their bytes, what is checked when they are mapped, and what that keeps."""

import gc
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline.records import mapped_shards
from pipeline.records.info import DatasetInfo, load_info
from pipeline.records.mapped_shards import map_shards
from pipeline.records.read_failure import EXCLUDE
from schemas.file_names import COMPLETED, index_name, shard_name
from schemas.versions import Versions
from tests.support.dataset_factory import exclude, read_index, write_dataset
from tests.support.dataset_files import FAULTS, damaged, exchange, flip, next_tick
from tests.support.descriptors import descriptors, maps

CHANGED = "the file was changed, and is not the one of the build any more"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 records of pixels in four shards; tests leave it as it was."""
    return write_dataset(tmp_path_factory.mktemp("pixels") / "receipts", raw=True)


@pytest.fixture
def copy(tmp_path: Path, directory: Path) -> Path:
    """A copy that tests may damage."""
    return Path(shutil.copytree(directory, tmp_path / "receipts"))


def shard_paths(info: DatasetInfo) -> list[str]:
    return [f"{info.data_dir}/{shard.name}" for shard in info.split("train").shards]


def map_all(directory: Path, *, verify: bool = True) -> tuple[np.ndarray, np.ndarray]:
    info = load_info(directory)
    return map_shards(info, shard_paths(info), verify=verify)


@pytest.mark.parametrize("verify", [True, False])
def test_the_bytes_are_those_of_the_files(directory: Path, verify: bool):
    memory, starts = map_all(directory, verify=verify)
    assert (starts % 4096 == 0).all()
    for path, start in zip(shard_paths(load_info(directory)), starts, strict=True):
        data = np.fromfile(path, np.uint8)
        np.testing.assert_array_equal(memory[start : start + len(data)], data)


def test_memory_is_unmapped_with_the_last_reference(directory: Path):
    arrays = [map_all(directory)[0] for _ in range(100)]
    assert maps(directory) >= 400
    assert descriptors(directory) == 0
    part = arrays[0][:10]
    del arrays
    gc.collect()
    assert maps(directory) == 4
    del part
    gc.collect()
    assert maps(directory) == 0


REASONS = {
    "missing file": "No such file or directory",
    "cut off": r"it has \d+ bytes, the manifest says \d+",
    "ends before": r"it has \d+ bytes, the manifest says \d+",
}


@pytest.mark.parametrize("fault", [*FAULTS, "missing file"])
def test_damage_is_an_error(directory: Path, fault: str):
    index, path = read_index(directory, 2), directory / shard_name("train", 2)
    for position in (0, 3, 7):
        next_tick()
        offset, length = int(index.offset[position]), int(index.length[position])
        sentence = f"{path} cannot be read: {REASONS.get(fault, CHANGED)}; {re.escape(EXCLUDE)}"
        with damaged(path, fault, offset, length), pytest.raises(ValueError, match=f"^{sentence}$"):
            map_all(directory)
    map_all(directory)


def test_checksums_need_not_be_verified(copy: Path):
    flip(copy / shard_name("train", 0), 1000)
    map_all(copy, verify=False)
    with pytest.raises(ValueError, match=CHANGED):
        map_all(copy)
    (copy / shard_name("train", 0)).write_bytes(b"short")
    with pytest.raises(ValueError, match="it has 5 bytes, the manifest says"):
        map_all(copy, verify=False)


def test_records_that_were_exchanged_are_an_error(tmp_path: Path):
    """Every record is whole, and as long as the index says."""
    directory = write_dataset(tmp_path / "data", counts={"a": 4, "b": 4}, shards=1, raw=True)
    exchange(directory / shard_name("train", 0), read_index(directory, 0), 0, 7)
    with pytest.raises(ValueError, match=CHANGED):
        map_all(directory)


def test_a_damaged_index_is_an_error(copy: Path):
    """Labels and places of pixels come from it."""
    flip(copy / index_name(shard_name("train", 1)), 700)
    with pytest.raises(ValueError, match=r"00001.index.npz: has another checksum than "):
        map_all(copy, verify=False)


def test_a_shard_is_read_once_until_it_changes(copy: Path, monkeypatch: pytest.MonkeyPatch):
    read = []
    whole = mapped_shards.OpenFile.checksum
    monkeypatch.setattr(
        mapped_shards.OpenFile, "checksum", lambda self: read.append(self) or whole(self)
    )
    for _ in range(2):
        map_all(copy)
        assert len(read) == 4
    next_tick()
    shutil.copy(copy / shard_name("train", 0), copy / "again")
    (copy / "again").replace(copy / shard_name("train", 0))
    map_all(copy)
    assert len(read) == 5


def test_records_that_are_left_out_may_be_damaged(copy: Path):
    exclude(copy, {2: [6, 7]})
    path, index = copy / shard_name("train", 2), read_index(copy, 2)
    with path.open("r+b") as file:
        file.truncate(int(index.offset[6]) + 100)
    memory, starts = map_all(copy)
    end = int(index.offset[6])
    np.testing.assert_array_equal(
        memory[starts[2] : starts[2] + end], np.fromfile(path, np.uint8)[:end]
    )
    flip(path, int(index.offset[3]) + 1000)
    with pytest.raises(ValueError, match="checksum of the record's bytes is wrong"):
        map_all(copy)
    with path.open("r+b") as file:
        file.truncate(int(index.offset[5]) + 100)
    with pytest.raises(ValueError, match="the file ends inside a record"):
        map_all(copy, verify=False)


def test_another_version_in_the_same_place_is_an_error(copy: Path):
    info = load_info(copy)
    ended = Versions.first(b"").adding(2, b"another").ending([1])
    (copy / COMPLETED).write_bytes(ended.to_bytes())
    with pytest.raises(ValueError, match=f"^{copy}: version 1 has ended, as receipts"):
        map_shards(info, shard_paths(info), verify=False)
