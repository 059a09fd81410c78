"""Records as a sequence, read without TensorFlow."""

import itertools
import multiprocessing
import pickle
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pipeline.records import open_file
from pipeline.records.read_failure import EXCLUDE
from pipeline.records.sequence import Records
from schemas.file_names import COMPLETED
from schemas.receipt import Label
from schemas.versions import Versions
from tests.support.dataset_factory import (
    BOX,
    HEIGHT,
    LAYOUTS,
    WIDTH,
    exclude,
    pixels,
    write_dataset,
)
from tests.support.dataset_files import MANIFEST, flip, index_of, manifest_of, offset_of, records_of
from tests.support.processes import run_python

CHANGED = "cannot be read: the file was changed, and is not the one of the build any more"
DAMAGED = 2  # shard of which `dataset_files` damages records


@pytest.fixture(scope="module")
def records(directory: Path) -> Records:
    """32 records in four shards of eight."""
    return Records(directory, "train")


@pytest.fixture
def copy(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(directory, tmp_path / "copy"))


def ids(records: Records) -> list[str]:
    return [record["image/source_id"] for record in records]


def stored_ids(directory: Path) -> list[list[str]]:
    shards = records_of(directory, "train")
    return [[record["image/source_id"] for record in shard] for shard in shards]


def test_records_come_in_the_order_of_the_shards(directory: Path, records: Records):
    expected = list(itertools.chain(*stored_ids(directory)))
    assert len(records) == len(expected) == 32
    assert ids(records) == expected
    assert records[-1]["image/source_id"] == records[np.int64(31)]["image/source_id"]


def test_values_are_numpy_and_strings(tmp_path: Path):
    labels = (Label(name="total", type="float"),)
    directory = write_dataset(tmp_path / "receipts", labels=labels, without_boxes=("omega",))
    records = Records(directory, "train")
    assert records.info.version == 1
    [stored] = [each for each in records if each["receipt/layout"] == "gamma"][:1]
    assert stored["image/encoded"].startswith(b"\xff\xd8")
    assert stored["image/format"] == "jpeg"
    assert type(stored["image/height"]) is np.int64
    assert (stored["image/height"], stored["image/width"]) == (HEIGHT, WIDTH)
    assert type(stored["receipt/total"]) is np.float32
    assert stored["image/object/bbox/ymax"].dtype == np.float32
    assert stored["image/object/bbox/ymax"] == [np.float32(BOX[3])]
    assert stored["image/object/text"].tolist() == ["TOTAL"]
    assert stored.keys() == {feature.name for feature in records.info.features}

    [empty] = [each for each in records if each["receipt/layout"] == "omega"]
    assert empty["image/object/bbox/xmin"].shape == empty["image/object/text"].shape == (0,)


@pytest.mark.parametrize("gray", [False, True])
def test_raw_pixels_have_their_shape(tmp_path: Path, gray: bool):
    records = Records(write_dataset(tmp_path / "receipts", raw=True, gray=gray), "train")
    for record in records:
        image = record["image/encoded"]
        number = int(record["image/source_id"].rpartition("-")[2])
        assert image.flags.writeable
        np.testing.assert_array_equal(image, pixels(number, gray=gray))


def test_records_that_are_excluded_have_no_position(copy: Path):
    expected = stored_ids(copy)
    exclude(copy, {0: [0, 3], 2: range(8)})
    del expected[2], expected[0][3], expected[0][0]
    records = Records(copy, "train")
    assert len(records) == 22
    assert ids(records) == list(itertools.chain(*expected))


def test_threads_read_at_the_same_time(records: Records, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(open_file, "_MOST_OPEN", 1)
    few_open = pickle.loads(pickle.dumps(records))  # files are closed while others read them
    order = np.random.default_rng(0).integers(0, len(records), 2000).tolist()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: few_open[number]["image/source_id"], order))
    expected = ids(records)
    assert found == [expected[number] for number in order]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_them(records: Records, method: str):
    expected = ids(records)  # files are open
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        assert pool.map(ids, [records] * 3) == [expected] * 3


def test_neither_tensorflow_nor_beam_is_imported(directory: Path):
    code = (
        "import sys, tillroll\n"
        f"records = tillroll.Records({str(directory)!r}, 'train')\n"
        "sampler = tillroll.BatchSampler(records, global_batch_size=8)\n"
        "print(len([records[each] for each in sampler[5]]))\n"
        "print(*{'tensorflow', 'keras', 'apache_beam'} & {*sys.modules})"
    )
    assert run_python("-c", code).stdout.split() == ["8"]


@pytest.mark.parametrize("number", [32, -33])
def test_a_position_out_of_range(directory: Path, records: Records, number: int):
    sentence = f"there is no record {number}: split 'train' of {directory} has the records 0 to 31"
    with pytest.raises(IndexError, match=f"^{re.escape(sentence)}$"):
        records[number]
    with pytest.raises(TypeError):
        records[1:3]  # type: ignore[index]


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        (40, "checksum of the record's bytes is wrong"),
        (2, "checksum of the record's length is wrong"),
    ],
)
def test_a_damaged_record_is_named(copy: Path, where: int, fault: str):
    exclude(copy, {DAMAGED: [1, 4]})
    path = copy / manifest_of(copy).splits["train"].shards[DAMAGED].name
    offset = offset_of(copy, 5)
    flip(path, offset + where)
    records = Records(copy, "train")
    number = 16 + 3  # rows 0, 2, 3 of the shard come before
    name = index_of(copy).id(5)
    sentence = f"{path}: record {name} at byte {offset} cannot be read: {fault}; {EXCLUDE}"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        records[number]
    assert len([records[each] for each in range(30) if each != number]) == 29


def test_a_shard_that_ends_too_early(copy: Path):
    path = copy / manifest_of(copy).splits["train"].shards[DAMAGED].name
    path.write_bytes(path.read_bytes()[:-10])
    index = index_of(copy)
    length = int(index.length[7]) - 16
    sentence = (
        f": record {index.id(7)} at byte {index.offset[7]} cannot be read: record holds {length} "
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Records(copy, "train")[23]


def test_a_shard_that_is_not_there(copy: Path):
    path = copy / manifest_of(copy).splits["train"].shards[1].name
    stored_id = stored_ids(copy)[1][2]
    path.unlink()
    records = Records(copy, "train")
    sentence = f"{path}: record {stored_id} at byte "
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}.*: No such file or directory; "):
        records[10]


def test_a_version_that_has_ended(copy: Path):
    """Although the files are open, and have other hard links."""
    records = Records(copy, "train")
    assert len(ids(records)) == 32
    for name in manifest_of(copy).splits["train"].shards[1].files:
        (copy.parent / name).hardlink_to(copy / name)
        (copy / name).unlink()
    ended = Versions.first(b"").adding(2, b"another").ending([1])
    (copy / COMPLETED).write_bytes(ended.to_bytes())
    sentence = (
        f"{copy}: version 1 has ended, as receipts in it had to be forgotten: make the dataset "
        "again to read its newest version, with which pipeline.train goes on by --other-data"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        records[10]


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize("read_before", [False, True])
def test_a_dataset_that_was_built_in_its_place(
    copy: Path, tmp_path: Path, read_before: bool, pickled: bool
):
    """Records of the same lengths, but of other layouts."""
    records = Records(copy, "train")
    if read_before:
        ids(records)
    shutil.rmtree(copy)
    write_dataset(copy, counts={"beta": 20, "gamm": 9, "delta": 3})
    if pickled:
        records = pickle.loads(pickle.dumps(records))
    for number in range(len(records)):
        is_open = read_before and not pickled
        sentence = CHANGED if is_open else f"^{re.escape(str(copy))} holds another dataset by now"
        with pytest.raises(ValueError, match=sentence):
            records[number]


def test_no_dataset(tmp_path: Path):
    sentence = f"{tmp_path} holds no finished dataset (no file COMPLETED): check the path, or build"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(sentence)}"):
        Records(tmp_path, "train")


@pytest.mark.parametrize(
    ("split", "version", "sentence"),
    [
        ("test", None, "{} has no split 'test': choose one of train, validation"),
        ("validation", None, "split 'validation' of {} is empty: choose another"),
        ("train", 3, "{}: there is no version 3: choose one of 1"),
    ],
)
def test_no_such_split_or_version(directory: Path, split: str, version: int | None, sentence: str):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence.format(directory))}$"):
        Records(directory, split, version=version)


def test_remote_directories_are_refused():
    sentence = (
        "Records reads local or mounted files, not s3://bucket/receipts: mount or copy it, or read "
        "it with make_dataset"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Records("s3://bucket/receipts", "train")


def test_the_directory_may_come_from_the_environment(
    directory: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TILLROLL_DATA_DIR", str(directory))
    records = Records(None, "train")
    assert repr(records) == f"Records({str(directory)!r}, 'train', version=1)"
    assert len(records) == sum(LAYOUTS.values())
    monkeypatch.setenv("TILLROLL_DATA_DIR", "gs://bucket/receipts")
    with pytest.raises(ValueError, match=r"^Records reads local or mounted files"):
        Records(None, "train")


def test_a_damaged_manifest(copy: Path):
    flip(copy / MANIFEST, 30)
    with pytest.raises(ValueError, match="does not match COMPLETED"):
        Records(copy, "train")
