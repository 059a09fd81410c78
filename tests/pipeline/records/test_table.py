"""Decks: which records stand for which cards, and what runs leave over."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from pipeline.config import Balance, InputConfig, Reading
from pipeline.records.info import DatasetInfo, load_info
from pipeline.records.table import Deck, make_deck, make_plan
from pipeline.sampling.integer_math import NUMPY
from pipeline.sampling.plan import Rows
from schemas.index import RecordIndex
from tests.support.dataset_factory import LAYOUTS, exclude, read_index, write_dataset

EXCLUDED = {0: [0, 3], 2: [1, 2, 7]}


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> DatasetInfo:
    """Four shards of eight records."""
    return load_info(write_dataset(tmp_path_factory.mktemp("deck") / "whole"))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> DatasetInfo:
    """Less five of them, `EXCLUDED`."""
    directory = write_dataset(tmp_path_factory.mktemp("deck") / "damaged")
    exclude(directory, EXCLUDED)
    return load_info(directory)


def ids(info: DatasetInfo, deck: Deck) -> list[str]:
    """Id of each record of a deck, found by its shard and offset."""
    found = {}
    for shard in range(len(deck.paths)):
        index = read_index(Path(info.data_dir), shard)
        found |= {
            (shard, offset): id_
            for id_, offset in zip(index.ids(), index.offset.tolist(), strict=True)
        }
    shard = np.searchsorted(deck.shard_ends, np.arange(len(deck)), side="right")
    in_shards = [found[at] for at in zip(shard.tolist(), deck.offset.tolist(), strict=True)]
    return in_shards if deck.order is None else [in_shards[place] for place in deck.order]


def kept(info: DatasetInfo, excluded: dict[int, list[int]]) -> list[str]:
    """Ids in the order of the shards."""
    return [
        id_
        for shard in range(4)
        for position, id_ in enumerate(read_index(Path(info.data_dir), shard).ids())
        if position not in excluded.get(shard, [])
    ]


def test_strata_are_the_layouts(info: DatasetInfo):
    deck = Deck.of_records(info, "train", by="layout")
    names = [info.layouts[category] for category in deck.categories]
    assert dict(zip(names, deck.counts.tolist(), strict=True)) == LAYOUTS
    assert sorted(ids(info, deck)) == sorted(kept(info, {}))
    layouts = [each.rpartition("-")[0] for each in ids(info, deck)]
    assert layouts == [name for name in names for _ in range(LAYOUTS[name])]
    assert deck.first_records.tolist() == [0, 20, 29, 31]
    # Within a layout, records lie as in the shards.
    assert np.all(np.diff(deck.order[:20]) > 0)


def test_records_that_are_excluded_are_in_no_deck(damaged: DatasetInfo):
    expected = kept(damaged, EXCLUDED)
    assert len(expected) == 27
    by_layout = Deck.of_records(damaged, "train", by="layout")
    assert sorted(ids(damaged, by_layout)) == sorted(expected)
    assert by_layout.counts.sum() == 27
    in_order = Deck.in_order(damaged, "train")
    assert ids(damaged, in_order) == expected
    assert len(in_order) == damaged.records("train") == 27


def test_a_layout_whose_records_are_all_excluded_is_no_stratum(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts")
    shard, position = next(
        (shard, ids.index("omega-31"))
        for shard in range(4)
        if "omega-31" in (ids := read_index(directory, shard).ids())
    )
    exclude(directory, {shard: [position]})
    info = load_info(directory)
    deck = Deck.of_records(info, "train", by="layout")
    assert [info.layouts[each] for each in deck.categories] == ["alpha", "beta", "gamma"]
    assert make_plan(info, "train", InputConfig(), deck, batch_size=31, seed=0).places == 31


@pytest.mark.parametrize("shard", [0, 2, 3], ids=["first", "middle", "last"])
def test_a_shard_whose_records_are_all_excluded_is_not_read(tmp_path: Path, shard: int):
    directory = write_dataset(tmp_path / "receipts")
    whole = Deck.in_order(load_info(directory), "train")
    exclude(directory, {shard: range(8)})
    deck = Deck.in_order(load_info(directory), "train")
    assert len(deck) == 24
    assert deck.counts.tolist() == [8, 8, 8]
    assert set(whole.paths) - set(deck.paths) == {whole.paths[shard]}


def run_records(deck: Deck, number: int) -> np.ndarray:
    """Records of all cards in an epoch of this number, in the order of the cards."""
    plan_epoch = type("Epoch", (), {"number": np.int64(number)})()
    stratum = np.repeat(np.arange(len(deck.counts)), deck.counts)
    rows = Rows(card=np.arange(len(stratum)), stratum=stratum)
    first = deck.records(rows, plan_epoch, NUMPY)
    return first[:, None] + np.arange(deck.run_length)


@pytest.mark.parametrize("run_length", [2, 3, 4, 5])
def test_runs_hold_records_once_an_epoch_and_leave_out_others_each_time(
    damaged: DatasetInfo, run_length: int
):
    deck = Deck.of_runs(damaged, "train", run_length=run_length)
    assert deck.counts.tolist() == [size // run_length for size in (6, 8, 5, 8)]
    assert deck.spare.tolist() == [size % run_length for size in (6, 8, 5, 8)]
    shard_ends = np.cumsum([6, 8, 5, 8])
    missing = np.zeros((60, 27), bool)
    for number in range(60):
        runs = run_records(deck, number)
        assert len(np.unique(runs)) == runs.size == 27 - deck.spare.sum()
        in_shard = np.searchsorted(shard_ends, runs, side="right")
        assert np.all(in_shard == in_shard[:, :1]), "a run lies in two shards"
        missing[number, np.setdiff1d(np.arange(27), runs)] = True
    # 60 is a multiple of every number of gaps: each is as often where runs leave over.
    gaps = np.repeat(deck.counts + 1, [6, 8, 5, 8])
    assert set((missing.sum(axis=0) * gaps).tolist()) <= {0, 60}
    assert not (missing[1:] & missing[:-1]).any(), "a record is missing twice in a row"


def test_what_follows_is_read_together(damaged: DatasetInfo):
    deck = Deck.of_runs(damaged, "train", run_length=2)
    positions = [
        [position for position in range(8) if position not in EXCLUDED.get(shard, [])]
        for shard in range(4)
    ]
    expected = [
        bool(number) and position == own[number - 1] + 1
        for own in positions
        for number, position in enumerate(own)
    ]
    assert deck.follows.tolist() == expected
    assert expected.count(False) == 6  # four shards, two gaps within them


def test_paths_and_index_starts_find_the_ids(damaged: DatasetInfo):
    deck = Deck.in_order(damaged, "train")
    for number, path in enumerate(deck.index_paths):
        data = Path(path).read_bytes()
        records, offset, id_end, id_text = deck.index_starts[number].tolist()
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
        Deck.in_order(info, "train")


def test_which_deck_a_training_run_takes(info: DatasetInfo):
    config = InputConfig(balance=Balance(temperature=0.5, repeat_cap=3))
    deck = make_deck(info, "train", config)
    assert len(deck.counts) == len(LAYOUTS)
    plan = make_plan(info, "train", config, deck, batch_size=8, seed=1)
    assert (plan.batch_cards, plan.balance, plan.repeat_cap) == (8, 0.5, 3)

    config = InputConfig(reading=Reading(run_length=4))
    deck = make_deck(info, "train", config)
    assert deck.counts.tolist() == [2, 2, 2, 2]
    plans = [
        make_plan(info, split, config, deck, batch_size=8, seed=seed)
        for split, seed in itertools.product(("train", "validation"), (1, 2))
    ]
    assert plans[0].batch_cards == 2
    assert len({plan.seed for plan in plans}) == 4


def test_a_run_must_fit_into_each_shard(damaged: DatasetInfo):
    sentence = (
        f"run_length 6 exceeds the 5 records of the smallest shard of split 'train' in "
        f"{damaged.data_dir}: choose less, or build fewer shards"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Deck.of_runs(damaged, "train", run_length=6)
