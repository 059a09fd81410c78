"""The sampler: the batches of `make_dataset` as positions of records."""

import itertools
import pickle
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Balance, InputConfig
from pipeline.records.batch_sampler import BatchSampler
from pipeline.records.sequence import Records
from tests.support.dataset_factory import LAYOUTS, exclude, write_dataset

PHASES = Balance(alpha=((1.0, 0), (0.4, 20), (0.0, 101)), repeat_cap=4)
STEPS = 200


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with records that are left out, so that positions are not those of the shards."""
    directory = write_dataset(tmp_path_factory.mktemp("sampler") / "receipts")
    exclude(directory, {0: [0, 3], 2: [1, 2, 7]})
    return directory


@pytest.fixture(scope="module")
def records(damaged: Path) -> Records:
    return Records(damaged, "train")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world_size", "balance"),
    [
        pytest.param(1, Balance(), id="natural"),
        pytest.param(3, Balance(), id="natural, 3 ranks"),
        pytest.param(3, Balance(alpha=0, repeat_cap=4), id="uniform, 3 ranks"),
        pytest.param(1, PHASES, id="phases"),
    ],
)
def test_batches_are_those_of_tensorflow(
    damaged: Path, records: Records, world_size: int, balance: Balance
):
    tf = pytest.importorskip("tensorflow")
    from pipeline.dataset import make_dataset

    config = InputConfig(
        height=16, width=16, features=("id", "image", "step"), dtype="uint8", balance=balance
    )
    ids = [record["image/source_id"] for record in records]
    for rank in range(world_size):
        dataset = make_dataset(
            damaged,
            global_batch_size=12,
            config=config,
            seed=5,
            start_step=3,
            input_context=tf.distribute.InputContext(world_size, rank, world_size),
        )
        sampler = BatchSampler(
            records,
            global_batch_size=12,
            balance=balance,
            seed=5,
            rank=rank,
            world_size=world_size,
            start_step=3,
            steps=STEPS,
        )
        assert sampler.steps_per_epoch == dataset.steps_per_epoch == 2
        compared = 0
        for step, (positions, batch) in enumerate(zip(sampler, dataset, strict=False), start=3):
            assert {*batch["step"].numpy().tolist()} == {step}
            assert [ids[each] for each in positions] == [
                each.decode() for each in batch["id"].numpy().tolist()
            ]
            compared += len(positions)
        assert compared == STEPS * 12 // world_size


def test_ranks_share_the_global_batches(records: Records):
    whole = BatchSampler(records, global_batch_size=12, seed=1, steps=40)
    parts = [
        BatchSampler(records, global_batch_size=12, seed=1, rank=rank, world_size=3, steps=40)
        for rank in range(3)
    ]
    for batch, *own in zip(whole, *parts, strict=True):
        assert sorted(batch) == sorted(itertools.chain(*own))
        assert [len(each) for each in own] == [4, 4, 4]


def test_an_epoch_holds_every_record_once(directory: Path):
    records = Records(directory, "train")
    sampler = BatchSampler(records, global_batch_size=8, steps=4)
    assert sampler.steps_per_epoch == 4
    assert sorted(itertools.chain(*sampler)) == list(range(32))
    for batch in sampler:
        layouts = Counter(records[each]["receipt/layout"] for each in batch)
        assert all(abs(layouts[name] - count / 4) < 1 for name, count in LAYOUTS.items())


def test_the_step_is_all_the_state(records: Records):
    whole = BatchSampler(records, global_batch_size=4, seed=2)
    first = list(itertools.islice(whole, 50))
    resumed = BatchSampler(records, global_batch_size=4, seed=2, start_step=17)
    assert list(itertools.islice(resumed, 33)) == first[17:]
    assert [resumed[number] for number in (32, 0, 5)] == [first[49], first[17], first[22]]
    assert [whole[number] for number in range(50)] == first
    assert pickle.loads(pickle.dumps(resumed))[3] == first[20]
    other = BatchSampler(records, global_batch_size=4, seed=3)
    assert list(itertools.islice(other, 50)) != first


def epochs_of(records: Records, count: int, *, rank: int = 0, world_size: int = 1) -> list:
    """The batches of `count` epochs of 5 steps each, by their steps."""
    sampler = BatchSampler(records, rank=rank, world_size=world_size, **UNIFORM)
    return [[sampler[5 * epoch + number] for number in range(5)] for epoch in range(count)]


UNIFORM: dict[str, Any] = {"global_batch_size": 4, "balance": Balance(alpha=0), "seed": 3}


def drawn_by_a_loader_with_workers(sampler: BatchSampler, *, ahead: int = 3) -> Iterator[list[int]]:
    """Draws batches as PyTorch's DataLoader does, whose workers read ahead.

    It calls `iter` twice, and draws from the second iterator alone.
    """
    iter(sampler)
    batches = iter(sampler)
    ready = list(itertools.islice(batches, ahead))
    while ready:
        yield ready.pop(0)
        ready += itertools.islice(batches, 1)


def test_each_iteration_is_the_next_epoch(records: Records):
    expected = epochs_of(records, 4)
    assert len({str(epoch) for epoch in expected}) == 4
    plain = BatchSampler(records, steps=5, **UNIFORM)
    assert [list(plain) for _ in range(4)] == expected
    workers = BatchSampler(records, steps=5, **UNIFORM)
    assert [list(drawn_by_a_loader_with_workers(workers)) for _ in range(4)] == expected
    resumed = BatchSampler(records, steps=5, start_step=10, **UNIFORM)
    assert [list(resumed) for _ in range(2)] == expected[2:]


def test_an_epoch_that_is_broken_off_is_not_repeated(records: Records):
    expected = epochs_of(records, 3)
    sampler = BatchSampler(records, steps=5, **UNIFORM)
    for epoch in expected:
        assert list(itertools.islice(sampler, 2)) == epoch[:2]


def test_no_record_stays_unseen_in_ten_epochs_of_a_balance(directory: Path):
    """A uniform balance repeats records of rare layouts, so an epoch leaves out others."""
    records = Records(directory, "train")
    options: dict[str, Any] = {"global_batch_size": 8, "balance": Balance(alpha=0)}
    steps = BatchSampler(records, **options).steps_per_epoch
    sampler = BatchSampler(records, steps=steps, **options)
    first = {*itertools.chain(*sampler)}
    assert len(first) < len(records)
    seen = first.union(*(itertools.chain(*sampler) for _ in range(9)))
    assert len(seen) == len(records)


def test_without_steps_an_iteration_continues_after_the_last_batch(records: Records):
    expected = list(itertools.islice(BatchSampler(records, **UNIFORM), 12))
    sampler = BatchSampler(records, **UNIFORM)
    sampler.set_epoch(0)
    assert list(itertools.chain(*(itertools.islice(sampler, 4) for _ in range(3)))) == expected
    sentence = "set_epoch(1) needs the length of an epoch: pass steps to BatchSampler, such as "
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}steps=6 for every record once$"):
        sampler.set_epoch(1)


def test_set_epoch_chooses_the_batches(records: Records):
    expected = epochs_of(records, 6)
    sampler = BatchSampler(records, steps=5, **UNIFORM)
    for epoch in (4, 1):
        sampler.set_epoch(epoch)
        assert list(sampler) == expected[epoch]
    assert list(sampler) == expected[2]
    # Lightning, Fabric and Accelerate look for it at `batch_sampler.sampler`.
    sampler.sampler.set_epoch(5)
    assert list(sampler) == expected[5]
    with pytest.raises(ValueError, match=r"^epoch must be at least 0, got -1$"):
        sampler.set_epoch(-1)


def test_batches_that_come_twice_are_told(records: Records):
    """Accelerate calls set_epoch(0) again after an epoch that the loop has broken off."""
    sampler = BatchSampler(records, steps=5, **UNIFORM)
    sampler.set_epoch(0)
    first = list(itertools.islice(sampler, 2))
    sampler.set_epoch(0)
    with pytest.warns(RuntimeWarning, match="from step 0 on are drawn a second time.*set_epoch"):
        assert list(itertools.islice(sampler, 2)) == first


def test_an_epoch_that_is_set_too_late_is_told(records: Records):
    """Lightning goes on at epoch 2: workers read ahead before its first call of set_epoch."""
    sampler = BatchSampler(records, steps=5, **UNIFORM)
    next(drawn_by_a_loader_with_workers(sampler))
    with pytest.warns(RuntimeWarning, match=r"set_epoch\(2\) comes after batches of another epoch"):
        sampler.set_epoch(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.set_epoch(3)  # a loop that calls it before each epoch may break one off
        fresh = BatchSampler(records, steps=5, **UNIFORM)
        next(drawn_by_a_loader_with_workers(fresh))
        fresh.set_epoch(0)


@pytest.mark.parametrize("drawn", [0, 1, 4, 5])
@pytest.mark.parametrize("ahead", [0, 3])
def test_the_state_of_an_iteration(records: Records, drawn: int, ahead: int):
    """StatefulDataLoader saves the state of the iterator after a batch, and loads it before any.

    With workers, a loader reads ahead from the restored iterator, even at the end of an epoch,
    and makes another one then.
    """
    expected = epochs_of(records, 4)
    saved = BatchSampler(records, steps=5, **UNIFORM)
    list(saved)
    iteration = iter(saved)
    assert list(itertools.islice(iteration, drawn)) == expected[1][:drawn]
    state = pickle.loads(pickle.dumps(iteration.state_dict()))

    sampler = BatchSampler(records, steps=5, **UNIFORM)
    restored = iter(sampler)
    restored.load_state_dict(state)
    ready = list(itertools.islice(restored, ahead))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler.set_epoch(1 + drawn // 5)  # Lightning's, which comes later, and changes nothing
    assert [*ready, *restored] == expected[1][drawn:]
    sampler.set_epoch(2)
    assert [list(sampler) for _ in range(2)] == expected[2:]


def test_accelerate_divides_batches_that_are_not_divided(records: Records):
    """Accelerate's two processes take the halves of each batch, with split_batches=True."""
    sampler = BatchSampler(records, steps=5, **UNIFORM)
    assert sampler.batch_size == 4
    assert not hasattr(sampler, "drop_last")  # Lightning would make another sampler of it
    divided = BatchSampler(records, steps=5, rank=1, world_size=2, **UNIFORM)
    with pytest.raises(ValueError, match=r"among world_size=2 ranks, .*: pass world_size=1 where"):
        hasattr(divided, "batch_size")


@pytest.mark.parametrize("alpha", [1.0, ((1.0, 0), (0.5, 30), (0.0, 54))], ids=str)
def test_plans_of_several_steps_at_once_agree(
    records: Records, monkeypatch: pytest.MonkeyPatch, alpha: Any
):
    """Also where an epoch of 27 steps is no multiple of the steps that are planned at once."""
    options: dict[str, Any] = {"global_batch_size": 1, "balance": Balance(alpha=alpha)}
    expected = list(BatchSampler(records, steps=100, **options))
    for rows in (1, 4, 26, 27):
        monkeypatch.setattr("pipeline.records.batch_sampler._ROWS_AT_ONCE", rows)
        assert list(BatchSampler(records, start_step=2, steps=98, **options)) == expected[2:]


def test_a_step_of_a_phase_is_that_of_its_alpha_alone(records: Records):
    phases = ((1.0, 0), (0.5, 30), (0.0, 41))
    made = list(BatchSampler(records, global_batch_size=4, balance=Balance(alpha=phases), steps=60))
    alone = {
        alpha: list(
            BatchSampler(records, global_batch_size=4, balance=Balance(alpha=alpha), steps=60)
        )
        for alpha, _ in phases
    }
    assert made == [*alone[1.0][:30], *alone[0.5][30:41], *alone[0.0][41:]]
    assert made[30:41] != alone[1.0][30:41]
    assert made[41:] != alone[0.5][41:]


def test_how_many_batches_there_are(records: Records):
    assert len(BatchSampler(records, global_batch_size=4, steps=7)) == 7
    endless = BatchSampler(records, global_batch_size=4)
    with pytest.raises(TypeError, match=r"^a BatchSampler without steps has no end: pass steps"):
        len(endless)
    assert len(endless[10**6]) == 4
    for number, last in ((7, " to 6"), (-1, " to 6")):
        sentence = f"^there is no batch {number}: batches are numbered from 0{last}$"
        with pytest.raises(IndexError, match=sentence):
            BatchSampler(records, global_batch_size=4, steps=7)[number]
    with pytest.raises(IndexError, match=r"^there is no batch -1: batches are numbered from 0$"):
        endless[-1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"global_batch_size": 0}, "global_batch_size must be at least 1, got 0"),
        (
            {"global_batch_size": 8, "world_size": 3},
            "global_batch_size 8 can't be divided by 3 replicas: choose a multiple of 3",
        ),
        ({"world_size": 2, "rank": 2}, "rank must be 0 to 1 with world_size 2, got 2"),
        ({"rank": -1}, "rank must be at least 0, got -1"),
        ({"start_step": -1}, "start_step must be at least 0, got -1"),
        (
            {"start_step": 1 << 62},
            f"start_step must be at most 1,099,511,627,776 (2**40), got {1 << 62}",
        ),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"seed": 1.5}, "seed must be an integer, such as 0, got 1.5"),
        ({"balance": 0.5}, "balance must be of type Balance, such as Balance(alpha=0.3), got 0.5"),
    ],
)
def test_arguments_that_do_not_fit(records: Records, options: dict, sentence: str):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        BatchSampler(records, **options)


def test_a_step_beyond_the_highest(records: Records):
    """Products of the step would not fit into 64 bits."""
    highest = BatchSampler(records, global_batch_size=4, start_step=1 << 40)
    assert len(highest[0]) == 4
    with pytest.raises(ValueError, match=r"^step must be at most 1,099,511,627,776 \(2\*\*40\)"):
        highest[1000]


def test_records_must_be_records():
    sentence = "records must be of type Records, such as Records('data/receipts', 'train'), got [1"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        BatchSampler([1, 2, 3])  # type: ignore[arg-type]


def test_a_category_that_is_not_there(records: Records):
    with pytest.raises(ValueError, match="'shop' is not a category of "):
        BatchSampler(records, balance=Balance(by="shop"))
