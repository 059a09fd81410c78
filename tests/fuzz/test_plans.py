"""Random plans of batches: shares, epochs, ranks and resuming, against arithmetic of its own."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from pipeline.records.batch_sampler import BatchSampler
from pipeline.records.sequence import Records
from tests.fuzz.cases import random_cases
from tests.fuzz.random_datasets import random_balance, random_dataset
from tests.fuzz.shares import alpha_at, shares
from tests.fuzz.truth import read_versions

_NEAR = 1 + 1e-6  # of a record; shares are computed in floating point


def test_batches_of_random_plans(tmp_path: Path):
    for number, rng in enumerate(random_cases(40)):
        _check_plan(rng, random_dataset(rng, tmp_path / str(number)))


def _check_plan(rng: random.Random, directory: Path) -> None:
    records = Records(directory, "train")
    truth = read_versions(directory)[1].split("train")
    layouts = [truth[record["image/source_id"]].text("receipt/layout") for record in records]
    assert len(layouts) == len(truth)
    world = rng.choice([1, 1, 2, 3, 4, 5, 8])
    batch = world * rng.choice([1, 2, 3, 4, 7, 16, max(1, len(layouts) // world)])
    steps_per_epoch = max(1, len(layouts) // batch)
    steps = min(3 * steps_per_epoch + 5, 300)
    balance = random_balance(rng, steps)
    options = {"global_batch_size": batch, "balance": balance, "seed": rng.getrandbits(32)}
    print(f"{len(layouts)} records, {world} ranks, {options}")
    whole = BatchSampler(records, steps=steps, **options)
    assert whole.steps_per_epoch == steps_per_epoch
    batches = list(whole)
    parts = [
        list(BatchSampler(records, rank=rank, world_size=world, steps=steps, **options))
        for rank in range(world)
    ]
    counts = Counter(layouts)
    for step, rows in enumerate(batches):
        of_ranks = [part[step] for part in parts]
        assert sorted(rows) == sorted(row for part in of_ranks for row in part)
        expected = shares(
            counts,
            slots=steps_per_epoch * batch,
            alpha=alpha_at(balance.phases, step),
            repeat_cap=balance.repeat_cap,
        )
        per_batch = {name: share / steps_per_epoch for name, share in expected.items()}
        _check_shares([layouts[row] for row in rows], per_batch, 1)
        for part in of_ranks:
            _check_halves([layouts[row] for row in part], per_batch, world)
    if len(balance.phases) == 1:
        _check_epochs(batches, layouts, expected, balance.is_natural, steps_per_epoch)
    first = rng.randrange(steps)
    rank = rng.randrange(world)
    resumed = BatchSampler(
        records, rank=rank, world_size=world, start_step=first, steps=steps - first, **options
    )
    assert list(resumed) == parts[rank][first:]


def _check_shares(layouts: Sequence[str], per_batch: Mapping[str, float], division: int) -> None:
    """Checks that a part of a batch holds each layout within one record of its share."""
    found = Counter(layouts)
    for name, share in per_batch.items():
        assert abs(found[name] - share / division) < _NEAR, (name, found[name], share / division)


def _check_halves(layouts: Sequence[str], per_batch: Mapping[str, float], division: int) -> None:
    """Checks a rank's part, its halves, their halves and so on."""
    _check_shares(layouts, per_batch, division)
    if len(layouts) % 2 == 0:
        middle = len(layouts) // 2
        for half in (layouts[:middle], layouts[middle:]):
            _check_halves(half, per_batch, 2 * division)


def _check_epochs(
    batches: Sequence[Sequence[int]],
    layouts: Sequence[str],
    expected: Mapping[str, float],
    is_natural: bool,
    steps_per_epoch: int,
) -> None:
    """Checks how often records come in each epoch, and in all of them together."""
    together: Counter[int] = Counter()
    for first in range(0, len(batches) - steps_per_epoch + 1, steps_per_epoch):
        epoch = Counter(row for rows in batches[first : first + steps_per_epoch] for row in rows)
        together.update(epoch)
        for name, share in expected.items():
            times = [epoch[row] for row, layout in enumerate(layouts) if layout == name]
            assert abs(sum(times) - share) < 1 + 1e-4, (name, sum(times), share)
            assert max(times) - min(times) <= 1
        if is_natural and len(batches[first]) <= len(layouts):
            assert max(epoch.values()) == 1, "a record comes twice in an epoch"
    for name in expected:
        times = [together[row] for row, layout in enumerate(layouts) if layout == name]
        assert max(times) - min(times) <= 1
