"""Random datasets for trainers, written without Beam, and random balances."""

import random
from pathlib import Path

from pipeline.config import Balance
from tests.support.dataset_factory import exclude, write_dataset

_SIZES = ((60, 40), (40, 60), (90, 30), (24, 72))


def random_dataset(rng: random.Random, directory: Path) -> Path:
    """Writes up to 160 records in up to 9 layouts, some of which may be excluded."""
    counts = {
        f"layout-{number}": 1 + int(rng.expovariate(1 / 15)) % 60
        for number in range(rng.randint(1, 9))
    }
    shards = rng.randint(1, min(4, sum(counts.values())))
    sizes = rng.sample(_SIZES, rng.randint(1, len(_SIZES)))
    write_dataset(directory, counts=counts, shards=shards, sizes=sizes)
    if rng.random() < 0.3 and sum(counts.values()) > 2 * shards:
        exclude(directory, {rng.randrange(shards): [0]})
    return directory


def random_balance(rng: random.Random, steps: int) -> Balance:
    """Chooses an alpha, or phases of several within some steps, and a cap."""
    phases = rng.choice([1, 1, 2, 3])
    firsts = [0, *sorted(rng.sample(range(1, steps + phases), phases - 1))]
    alphas = [rng.choice([0.0, 0.1, 0.3, 0.5, 0.77, 1.0, 1.0]) for _ in firsts]
    return Balance(
        alpha=tuple(zip(alphas, firsts, strict=True)) if phases > 1 else alphas[0],
        repeat_cap=rng.choice([1, 1.5, 2, 8, 8, float("inf")]),
    )
