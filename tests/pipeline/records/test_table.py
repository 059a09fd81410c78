"""Decks: which records stand for which units, and what runs leave over."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from pipeline.config import Balance, InputConfig, Reading
from pipeline.records.info import DatasetInfo, load_info
from pipeline.records.table import RecordTable, load_record_table, make_plan
from pipeline.sampling.integer_math import NUMPY
from pipeline.sampling.plan import BatchPlan, BatchUnits
from schemas.index import RecordIndex
from tests.support.dataset_factory import LAYOUTS, exclude, read_index, write_dataset

EXCLUDED = {0: [0, 3], 2: [1, 2, 7]}


@pytest.fixture(scope="module")
def info(directory: Path) -> DatasetInfo:
    """Four shards of eight records."""
    return load_info(directory)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> DatasetInfo:
    """Less five of them, `EXCLUDED`."""
    directory = write_dataset(tmp_path_factory.mktemp("table") / "damaged")
    exclude(directory, EXCLUDED)
    return load_info(directory)


def ids(info: DatasetInfo, table: RecordTable) -> list[str]:
    """Id of each record of a table, found by its shard and offset."""
    found = {}
    for shard in range(len(table.paths)):
        index = read_index(Path(info.data_dir), shard)
        found |= {
            (shard, offset): id_
            for id_, offset in zip(index.ids(), index.offset.tolist(), strict=True)
        }
    shard = np.searchsorted(table.shard_ends, np.arange(len(table)), side="right")
    in_shards = [found[at] for at in zip(shard.tolist(), table.offset.tolist(), strict=True)]
    return in_shards if table.order is None else [in_shards[place] for place in table.order]


def kept(info: DatasetInfo, excluded: dict[int, list[int]]) -> list[str]:
    """Ids in the order of the shards."""
    return [
        id_
        for shard in range(4)
        for position, id_ in enumerate(read_index(Path(info.data_dir), shard).ids())
        if position not in excluded.get(shard, [])
    ]


def test_strata_are_the_layouts(info: DatasetInfo):
    table = RecordTable.by_category(info, "train", "layout")
    names = [info.layouts[category] for category in table.categories]
    assert dict(zip(names, table.counts.tolist(), strict=True)) == LAYOUTS
    assert sorted(ids(info, table)) == sorted(kept(info, {}))
    layouts = [each.rpartition("-")[0] for each in ids(info, table)]
    assert layouts == [name for name in names for _ in range(LAYOUTS[name])]
    assert table.first_records.tolist() == [0, 20, 29, 31]
    # Within a layout, records lie as in the shards.
    assert np.all(np.diff(table.order[:20]) > 0)


def test_records_that_are_excluded_are_in_no_table(damaged: DatasetInfo):
    expected = kept(damaged, EXCLUDED)
    assert len(expected) == 27
    by_layout = RecordTable.by_category(damaged, "train", "layout")
    assert sorted(ids(damaged, by_layout)) == sorted(expected)
    assert by_layout.counts.sum() == 27
    in_shard_order = RecordTable.in_shard_order(damaged, "train")
    assert ids(damaged, in_shard_order) == expected
    assert len(in_shard_order) == damaged.records("train") == 27


def test_a_layout_whose_records_are_all_excluded_is_no_stratum(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts")
    shard, position = next(
        (shard, ids.index("omega-31"))
        for shard in range(4)
        if "omega-31" in (ids := read_index(directory, shard).ids())
    )
    exclude(directory, {shard: [position]})
    info = load_info(directory)
    table = RecordTable.by_category(info, "train", "layout")
    assert [info.layouts[each] for each in table.categories] == ["alpha", "beta", "gamma"]
    plan = make_plan(info, "train", InputConfig(), table, batch_size=31, seed=0)
    assert plan.phase(0).plan.slots == 31


@pytest.mark.parametrize("shard", [0, 2, 3], ids=["first", "middle", "last"])
def test_a_shard_whose_records_are_all_excluded_is_not_read(tmp_path: Path, shard: int):
    directory = write_dataset(tmp_path / "receipts")
    whole = RecordTable.in_shard_order(load_info(directory), "train")
    exclude(directory, {shard: range(8)})
    table = RecordTable.in_shard_order(load_info(directory), "train")
    assert len(table) == 24
    assert table.counts.tolist() == [8, 8, 8]
    assert set(whole.paths) - set(table.paths) == {whole.paths[shard]}


def run_records(table: RecordTable, number: int) -> np.ndarray:
    """Records of all units in an epoch of this number, in the order of the units."""
    epoch = BatchPlan(counts=table.counts, batch_units=1).epoch(np.int64(number))
    stratum = np.repeat(np.arange(len(table.counts)), table.counts)
    rows = BatchUnits(unit=np.arange(len(stratum)), stratum=stratum)
    first = table.first_of_units(rows, epoch, NUMPY)
    return first[:, None] + np.arange(table.block_length)


@pytest.mark.parametrize("block_length", [2, 3, 4, 5])
def test_runs_hold_records_once_an_epoch_and_leave_out_others_each_time(
    damaged: DatasetInfo, block_length: int
):
    table = RecordTable.in_blocks(damaged, "train", block_length=block_length)
    assert table.counts.tolist() == [size // block_length for size in (6, 8, 5, 8)]
    assert table.remainder.tolist() == [size % block_length for size in (6, 8, 5, 8)]
    shard_ends = np.cumsum([6, 8, 5, 8])
    missing = np.zeros((60, 27), bool)
    for number in range(60):
        runs = run_records(table, number)
        assert len(np.unique(runs)) == runs.size == 27 - table.remainder.sum()
        in_shard = np.searchsorted(shard_ends, runs, side="right")
        assert np.all(in_shard == in_shard[:, :1]), "a run lies in two shards"
        missing[number, np.setdiff1d(np.arange(27), runs)] = True
    # 60 is a multiple of every number of gaps: each is as often where runs leave over.
    gaps = np.repeat(table.counts + 1, [6, 8, 5, 8])
    assert set((missing.sum(axis=0) * gaps).tolist()) <= {0, 60}
    assert not (missing[1:] & missing[:-1]).any(), "a record is missing twice in a row"


def test_what_follows_is_read_together(damaged: DatasetInfo):
    table = RecordTable.in_blocks(damaged, "train", block_length=2)
    positions = [
        [position for position in range(8) if position not in EXCLUDED.get(shard, [])]
        for shard in range(4)
    ]
    expected = [
        bool(number) and position == own[number - 1] + 1
        for own in positions
        for number, position in enumerate(own)
    ]
    assert table.contiguous.tolist() == expected
    assert expected.count(False) == 6  # four shards, two gaps within them


def test_paths_and_index_starts_find_the_ids(damaged: DatasetInfo):
    table = RecordTable.in_shard_order(damaged, "train")
    for number, path in enumerate(table.index_paths):
        data = Path(path).read_bytes()
        records, offset, id_end, id_text = table.index_starts[number].tolist()
        index = RecordIndex.from_bytes(data)
        assert records == len(index) == 8
        np.testing.assert_array_equal(np.frombuffer(data, np.int64, 8, offset), index.offset)
        np.testing.assert_array_equal(np.frombuffer(data, np.int64, 8, id_end), index.id_end)
        assert data[id_text:].startswith(index.id_text.tobytes())


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-50], bytes.swapcase])
def test_a_damaged_index_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]):
    info = load_info(write_dataset(tmp_path / "receipts"))
    path = Path(info.data_dir, info.split("train").shards[1].index_name)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        ValueError,
        match=rf"^{path}: not a record index: .+: run python -m beam_jobs\.verify$",
    ):
        RecordTable.in_shard_order(info, "train")


def test_which_table_a_training_run_takes(info: DatasetInfo):
    config = InputConfig(balance=Balance(alpha=0.5, repeat_cap=3))
    table = load_record_table(info, "train", config)
    assert len(table.counts) == len(LAYOUTS)
    plan = make_plan(info, "train", config, table, batch_size=8, seed=1).phase(0).plan
    assert (plan.batch_units, plan.alpha, plan.repeat_cap) == (8, 0.5, 3)

    config = InputConfig(reading=Reading(block_length=4))
    table = load_record_table(info, "train", config)
    assert table.counts.tolist() == [2, 2, 2, 2]
    plans = [
        make_plan(info, split, config, table, batch_size=8, seed=seed)
        for split, seed in itertools.product(("train", "validation"), (1, 2))
    ]
    assert plans[0].batch_units == 2
    assert len({plan.seed for plan in plans}) == 4


def test_a_run_must_fit_into_each_shard(damaged: DatasetInfo):
    sentence = (
        f"block_length 6 exceeds the 5 records of the smallest shard of split 'train' in "
        f"{damaged.data_dir}: choose less, or build fewer shards"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        RecordTable.in_blocks(damaged, "train", block_length=6)
