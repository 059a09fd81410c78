"""Reading by offset: the right records in order, and errors that name the wrong ones."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig, Reading
from pipeline.dataset import make_dataset
from pipeline.input.index_dataset import InputShard, training_records
from pipeline.records.info import GONE, NEWEST, VERIFY, load_info
from pipeline.records.read_failure import STORAGE, read_failure_in
from pipeline.records.reader import RecordReader, _explanation, _read, _records
from pipeline.records.table import RecordTable, load_record_table, make_plan
from pipeline.sampling.integer_math import NUMPY
from schemas.file_names import COMPLETED, index_name, shard_name
from schemas.index import RecordIndex
from schemas.versions import Versions
from tests.support.dataset_factory import exclude, read_index, write_dataset
from tests.support.dataset_files import FAULTS, damaged

pytestmark = pytest.mark.slow

COUNTS = {"alpha": 40, "beta": 16, "gamma": 7, "omega": 1}
RECORDS = sum(COUNTS.values())
EXCLUDED = {1: [0, 6], 2: [3, 4, 5], 3: [15]}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 records in four shards; tests leave it as it was."""
    return write_dataset(tmp_path_factory.mktemp("read") / "receipts", counts=COUNTS)


def payloads(directory: Path, shards: int = 4) -> dict[tuple[str, int], bytes]:
    """Shard and offset to the record, sliced out of the files."""
    found = {}
    for shard in range(shards):
        index = RecordIndex.from_bytes(
            (directory / index_name(shard_name("train", shard))).read_bytes()
        )
        path = directory / shard_name("train", shard)
        data = path.read_bytes()
        for offset, length in zip(index.offset.tolist(), index.length.tolist(), strict=True):
            found[str(path), offset] = data[offset + 12 : offset + length - 4]
    return found


def expected(
    directory: Path, table: RecordTable, numbers: np.ndarray, shards: int = 4
) -> list[bytes]:
    """Returns the contents of the records with these numbers."""
    whole = payloads(directory, shards)
    places = numbers if table.order is None else table.order[numbers]
    shards = np.searchsorted(table.shard_ends, places, side="right")
    return [
        whole[table.paths[shard], int(table.offset[place])]
        for shard, place in zip(shards, places, strict=True)
    ]


def reader_of(table: RecordTable, reading: Reading) -> RecordReader:
    info = load_info(Path(table.paths[0]).parent)
    return RecordReader(info, table, reading, mean_bytes=1000)


def reading(
    table: RecordTable,
    vectors: list[np.ndarray],
    *,
    block_length: int,
    parallel_reads: int | None = None,
) -> tf.data.Dataset:
    """The records of batches of numbers."""
    reader = reader_of(table, Reading(parallel_reads=parallel_reads))
    numbers = tf.data.Dataset.from_tensor_slices(np.stack(vectors))
    return reader.read(numbers, batch_size=len(vectors[0]), block_length=block_length)


def runs(table: RecordTable, count: int) -> list[np.ndarray]:
    """Random runs that need not begin where others end, some across what is left out."""
    size = table.block_length
    rng = np.random.default_rng(0)
    return [
        (rng.integers(0, len(table) - size + 1, 5)[:, None] + np.arange(size)).ravel()
        for _ in range(count)
    ]


@pytest.mark.parametrize("parallel_reads", [1, 8])
@pytest.mark.parametrize("block_length", [1, 5])
def test_records_come_in_order(
    tmp_path: Path, directory: Path, block_length: int, parallel_reads: int
):
    """Also where a run is read in pieces: across an excluded record and across two shards."""
    copy = Path(shutil.copytree(directory, tmp_path / "receipts"))
    exclude(copy, EXCLUDED)
    table = RecordTable.in_blocks(load_info(copy), "train", block_length=block_length)
    vectors = runs(table, 30)
    dataset = reading(table, vectors, block_length=block_length, parallel_reads=parallel_reads)
    assert list(dataset.as_numpy_iterator()) == expected(copy, table, np.concatenate(vectors))


@pytest.mark.parametrize("parallel_reads", [1, 4])
def test_runs_may_end_early_and_repeat_a_record(directory: Path, parallel_reads: int):
    """Reads as evaluation does: batches go on through the shards and are filled up at the end."""
    table = RecordTable.in_shard_order(load_info(directory), "train")
    numbers = np.minimum(np.arange(70), RECORDS - 1)
    vectors = [*numbers.reshape(-1, 10), np.array([5, 4, 4, 5, 6, 6, 7, 0, 1, 63])]
    dataset = reading(table, vectors, block_length=10, parallel_reads=parallel_reads)
    assert list(dataset.as_numpy_iterator()) == expected(directory, table, np.concatenate(vectors))


def test_datasets_of_all_sizes_share_a_graph(tmp_path: Path, directory: Path):
    other = write_dataset(tmp_path / "receipts", counts={"a": 30, "b": 4}, shards=2)
    counts = []
    for source, size in ((directory, 5), (directory, 8), (other, 12)):
        table = RecordTable.in_shard_order(load_info(source), "train")
        assert len(list(reading(table, [np.arange(size)], block_length=size))) == size
        counts.append(_read.experimental_get_tracing_count())
    assert len(set(counts)) == 1


@pytest.mark.parametrize("shards", [1, 64])
def test_any_number_of_shards_and_pipelines(tmp_path: Path, shards: int):
    """One shard for 64 pipelines, and a shard for each record with one pipeline."""
    directory = write_dataset(tmp_path / "receipts", counts=COUNTS, shards=shards)
    info, config = load_info(directory), InputConfig()
    table = load_record_table(info, "train", config)
    phased = make_plan(info, "train", config, table, batch_size=64, seed=0)
    plan = phased.phase(0).plan
    pipelines = 64 if shards == 1 else 1
    for number in {0, pipelines // 3, pipelines - 1}:
        part = InputShard.of(tf.distribute.InputContext(pipelines, number, pipelines))
        records = training_records(table, phased, part, start_step=0)
        reader = reader_of(table, config.reading)
        dataset = reader.read(records, batch_size=64 // pipelines, block_length=1)
        dataset = dataset.take(192 // pipelines)
        batches = [
            table.first_of_units(plan.batch(step), plan.epoch(np.int64(step)), NUMPY)
            for step in range(3)
        ]
        assert plan.steps_per_epoch == 1
        own = np.concatenate(
            [
                batch[part.rows(plan, tf.constant(step, tf.int64), np.int64(number))]
                for step, batch in enumerate(batches)
            ]
        )
        assert list(dataset.as_numpy_iterator()) == expected(directory, table, own, shards)


@pytest.mark.parametrize(("block_length", "parallel_reads"), [(1, 1), (8, 1), (8, 4)])
def test_an_error_names_the_record(directory: Path, block_length: int, parallel_reads: int):
    """At the beginning of a run, in its middle and at its end; its batch never comes."""
    table = RecordTable.in_blocks(load_info(directory), "train", block_length=block_length)
    numbers = np.arange(RECORDS)
    batches = [*numbers.reshape(-1, 16)]
    dataset = reading(table, batches, block_length=block_length, parallel_reads=parallel_reads)
    whole = expected(directory, table, numbers)
    index = read_index(directory, 2)
    path = directory / shard_name("train", 2)
    cases = [(fault, position) for fault in FAULTS for position in (8, 11, 15)]
    cases.append(("missing file", 0))
    for fault, position in cases:
        offset, length = int(index.offset[position]), int(index.length[position])
        before = []
        with damaged(path, fault, offset, length):
            with pytest.raises(tf.errors.InvalidArgumentError) as raised:
                before.extend(iter_into(dataset, before))
            assert (
                f"{path}: record {index.id(position)} at byte {offset} cannot be read; python -m "
                "beam_jobs.verify tells what is wrong with it, and with --exclude leaves out all "
                "that is damaged, records of a missing shard too; pipeline.train then goes on with "
                "--other-data"
            ) in str(raised.value), fault
        assert before[:32] == whole[:32], fault
        assert len(before) < 48, fault
    assert list(dataset.as_numpy_iterator()) == whole


def iter_into(dataset: tf.data.Dataset, found: list[bytes]) -> Iterator[bytes]:
    """Appends records to `found` one by one, so that those before an error are there."""
    for each in dataset.as_numpy_iterator():
        found.append(each)
    yield from ()


SECOND = "receipts-train.* could be read at the second attempt only: make the dataset again, with"


@pytest.mark.parametrize(
    ("completed", "sentence"),
    [
        (
            Versions.first(b"").adding(2, b"another").adding(12, b"third").ending([1]),
            "{}: version 1 has ended, as receipts in it had to be forgotten: {newest}",
        ),
        (
            Versions.first(b"").adding(2, b"another").adding(12, b"third").ending([2, 12]),
            "{} holds another dataset by now, built in its place: {newest}",
        ),
        (None, "{} holds no finished dataset any more (no file COMPLETED): {gone}"),
        ("as it was", "{}/{index} is missing: {verify}"),
    ],
)
def test_a_shard_that_is_gone_with_its_index_is_explained(
    tmp_path: Path, completed: Versions | str | None, sentence: str
):
    directory = write_dataset(tmp_path / "wi[l]d" / "data")
    info = load_info(directory)
    table = RecordTable.in_blocks(info, "train", block_length=1)
    numbers = np.arange(info.records("train"))
    dataset = reading(table, [numbers], block_length=1, parallel_reads=1)
    shard = info.split("train").shards[2]
    for name in shard.files:
        (directory / name).unlink()
    if completed is None:
        (directory / COMPLETED).unlink()
    elif isinstance(completed, Versions):
        (directory / COMPLETED).write_bytes(completed.to_bytes())
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        list(dataset.as_numpy_iterator())
    assert read_failure_in(raised.value) == sentence.format(
        directory, index=shard.index_name, newest=NEWEST, gone=GONE, verify=VERIFY
    )


@pytest.mark.parametrize("block_length", [1, 8])
def test_an_error_of_the_file_system_is_told(tmp_path: Path, block_length: int):
    """A folder in place of the file: what nobody can read, whoever runs the tests."""
    directory = write_dataset(tmp_path / "wi[l]d" / "data")
    table = RecordTable.in_blocks(load_info(directory), "train", block_length=block_length)
    dataset = reading(table, [np.arange(32)], block_length=block_length)
    shard = directory / shard_name("train", 2)
    shard.unlink()
    shard.mkdir()
    with pytest.raises(tf.errors.OpError) as raised:
        list(dataset.as_numpy_iterator())
    assert read_failure_in(raised.value) == f"{shard} cannot be read: Is a directory; {STORAGE}"


BEHIND = "an earlier record of this batch cannot be read: make the dataset again, with start_step"


def test_what_is_readable_again_is_no_reason_to_go_on(directory: Path):
    """The run was cut short, so the records after it would not be the plan's."""
    table = RecordTable.in_blocks(load_info(directory), "train", block_length=4)
    reader = reader_of(table, Reading())
    with pytest.raises(tf.errors.InvalidArgumentError, match=SECOND):
        list(_records(_explanation, reader._shards, tf.range(4, 8, dtype=tf.int64)))


@pytest.mark.parametrize("block_length", [1, 8])
def test_behind_a_record_that_is_named_no_error_says_it_was_read(
    directory: Path, block_length: int
):
    table = RecordTable.in_blocks(load_info(directory), "train", block_length=block_length)
    dataset = reading(table, [np.arange(8)], block_length=block_length, parallel_reads=1)
    places = [*np.arange(8)] if table.order is None else table.order[:8].tolist()
    shards = np.searchsorted(table.shard_ends, places, side="right")
    path = Path(table.paths[shards[3]])
    offset = int(table.offset[places[3]])
    with damaged(path, "payload", offset, 100):
        records = iter(dataset)
        errors = []
        while len(errors) < 4:
            try:
                next(records)
            except tf.errors.InvalidArgumentError as error:
                errors.append(error.message)
            except StopIteration:
                break
    assert len(errors) == 2
    assert f"at byte {offset} cannot be read; python -m beam_jobs.verify" in errors[0]
    assert BEHIND in errors[1]


@pytest.mark.parametrize("block_length", [1, 5])
def test_training_goes_on_without_what_is_excluded(tmp_path: Path, block_length: int):
    directory = write_dataset(tmp_path / "receipts", counts=COUNTS)
    config = InputConfig(
        height=8, width=8, features=("id",), reading=Reading(block_length=block_length)
    )
    lost = []
    for shard, positions in EXCLUDED.items():
        index = read_index(directory, shard)
        data = bytearray((directory / shard_name("train", shard)).read_bytes())
        for position in positions:
            lost.append(index.id(position))
            data[index.offset[position] + position % 20] ^= 1  # lengths and payloads
        (directory / shard_name("train", shard)).write_bytes(data)
    with pytest.raises(tf.errors.InvalidArgumentError, match="cannot be read"):
        list(make_dataset(directory, global_batch_size=10, config=config).take(6))

    exclude(directory, EXCLUDED)
    info = load_info(directory)
    sizes = [16, 14, 13, 15]
    steps = sum(size // block_length for size in sizes) * block_length // 10
    assert info.records("train") == sum(sizes) == RECORDS - len(lost)
    assert info.steps_per_epoch("train", 10, block_length=block_length) == steps == 5
    batches = list(make_dataset(directory, global_batch_size=10, config=config).take(3 * steps))
    ids = np.array([batch["id"].numpy().astype(str) for batch in batches]).reshape(3, steps * 10)
    for own in ids:
        assert len(set(own)) == 50
        assert not set(own) & set(lost)
    assert len(np.unique(ids)) == info.records("train"), "a record is missing from three epochs"
