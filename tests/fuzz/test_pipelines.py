"""Random input pipelines: what training and evaluation read, against arithmetic of its own."""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.dataset import make_dataset, make_evaluation_dataset
from tests.fuzz.cases import random_cases
from tests.fuzz.random_datasets import random_balance, random_dataset
from tests.fuzz.shares import alpha_at, shares
from tests.fuzz.truth import Record, read_versions

_NEAR = 1 + 1e-6  # of a record; shares are computed in floating point
_SIZES = [((32, 16), (16, 16)), ((48, 16), (32, 16), (16, 32)), ((64, 8), (8, 64))]
_FEATURES = ("image", "label", "id", "step", "row", "seed", "weight", "layout")

Size = tuple[int, int]
Batch = dict[str, np.ndarray]


def test_random_pipelines(tmp_path: Path):
    for number, rng in enumerate(random_cases(2)):
        _Pipeline(rng, random_dataset(rng, tmp_path / str(number))).check()


class _Pipeline:
    """A dataset and random options of its input pipelines."""

    def __init__(self, rng: random.Random, directory: Path) -> None:
        self.rng, self.directory = rng, directory
        self.records = read_versions(directory)[1].split("train")
        self.layouts = {id_: r.text("receipt/layout") for id_, r in self.records.items()}
        self.counts = Counter(self.layouts.values())
        self.replicas = rng.choice([1, 1, 2, 3, 4])
        self.pipelines = rng.choice([n for n in (1, 2, 3, 4) if self.replicas % n == 0])
        part = rng.choice([1, 2, 3, 8, rng.randint(1, max(1, len(self.records) // self.replicas))])
        self.batch = self.replicas * part
        self.steps_per_epoch = max(1, len(self.records) // self.batch)
        self.steps = min(2 * self.steps_per_epoch + 2, max(4, 400 // self.batch))
        self.sizes: Sequence[Size] | None = rng.choice([None, None, *_SIZES])
        balance = random_balance(rng, self.steps)
        if self.sizes and len(balance.phases) > 1:  # which phases do not take
            balance = type(balance)(repeat_cap=balance.repeat_cap)
        self.balance = balance
        self.config = InputConfig(
            height=16,
            width=16,
            channels=1,
            dtype="uint8",
            features=_FEATURES,
            balance=balance,
            buckets=self.sizes,
            sample_weights=rng.random() < 0.5,
        )
        self.seed = rng.getrandbits(32)
        print(f"{len(self.records)} records, {self.replicas} replicas of {self.pipelines}")
        print(f"pipelines, batches of {self.batch}, {self.config}")

    def check(self) -> None:
        """Checks training from the beginning, resumed and on one replica, and an evaluation."""
        steps = self.read(0, self.steps)
        by_epoch: dict[int, Counter[str]] = defaultdict(Counter)
        for step, batches in enumerate(steps):
            self.check_step(step, batches)
            by_epoch[step // self.steps_per_epoch].update(_ids(batches))
        whole_epochs = self.steps // self.steps_per_epoch
        if self.balance.is_natural and not self.sizes and self.batch <= len(self.records):
            for epoch in range(whole_epochs):
                assert max(by_epoch[epoch].values()) == 1, "a record comes twice in an epoch"
        # Begun at a later step, and on one replica, it is the same global batch.
        first = self.rng.randrange(self.steps)
        self.replicas = self.pipelines = 1
        ((alone,),) = self.read(first, 1)
        together = {n: np.concatenate([b[n] for b in steps[first]]) for n in alone}
        _assert_equal(_by_row(alone), _by_row(together))
        self.check_evaluation()

    def read(self, first: int, count: int) -> list[list[Batch]]:
        """Reads some steps, each the batches of all replicas in order."""
        steps: list[list[Batch]] = [[] for _ in range(count)]
        per_pipeline = self.replicas // self.pipelines
        for pipeline in range(self.pipelines):
            dataset = make_dataset(
                self.directory,
                global_batch_size=self.batch,
                config=self.config,
                seed=self.seed,
                start_step=first,
                input_context=tf.distribute.InputContext(self.pipelines, pipeline, self.replicas),
            )
            for number, batch in enumerate(dataset.take(count * per_pipeline)):
                arrays = {name: values.numpy() for name, values in batch.items()}
                steps[number // per_pipeline].append(arrays)
        return steps

    def check_step(self, step: int, batches: Sequence[Batch]) -> None:
        """Checks size, rows, shares and weights of a step."""
        assert len(batches) == self.replicas
        (size,) = {batch["image"].shape[1:3] for batch in batches}
        assert all((batch["step"] == step).all() for batch in batches)
        rows = np.concatenate([batch["row"] for batch in batches])
        assert sorted(rows) == list(range(self.batch))
        ids = _ids(batches)
        assert size in (self.sizes or [(16, 16)])
        if self.sizes:
            assert {_nearest(self.sizes, self.records[id_]) for id_ in ids} == {size}
        in_epoch = shares(
            self.counts,
            slots=self.steps_per_epoch * self.batch,
            alpha=alpha_at(self.balance.phases, step),
            repeat_cap=self.balance.repeat_cap,
        )
        in_batch = self._shares_of_size(size, in_epoch)
        for part, division in ((batches, 1), *(([batch], self.replicas) for batch in batches)):
            found = Counter(self.layouts[id_] for id_ in _ids(part))
            for name, share in in_batch.items():
                assert abs(found[name] - share / division) < _NEAR, (step, name, found, share)
        # Weighted by these, layouts count as often as in the records.
        slots = self.steps_per_epoch * self.batch
        weights = {
            name: (count / len(self.records)) / (in_epoch[name] / slots)
            for name, count in self.counts.items()
        }
        for batch in batches:
            expected = [weights[self.layouts[id_]] for id_ in _ids([batch])]
            np.testing.assert_allclose(batch["weight"], expected, rtol=2e-3)

    def _shares_of_size(self, size: Size, in_epoch: Mapping[str, float]) -> dict[str, float]:
        """Divides a batch of a size among the layouts that have records of it."""
        if not self.sizes:
            return {name: share / self.steps_per_epoch for name, share in in_epoch.items()}
        of_size = Counter(
            self.layouts[id_]
            for id_, record in self.records.items()
            if _nearest(self.sizes, record) == size
        )
        weights = {name: n * in_epoch[name] / self.counts[name] for name, n in of_size.items()}
        return {name: w * self.batch / sum(weights.values()) for name, w in weights.items()}

    def check_evaluation(self) -> None:
        """Checks that an evaluation holds each record once, and so does the next one."""
        dataset, steps = make_evaluation_dataset(
            tf.distribute.get_strategy(),
            self.directory,
            split="train",
            global_batch_size=self.rng.choice([1, 3, 16, len(self.records) + 5]),
            config=InputConfig(
                height=16, width=16, channels=1, features=("image", "id"), buckets=self.sizes
            ).with_features("weight"),
        )
        batches = iter(dataset)
        for _ in range(2):
            seen: Counter[str] = Counter()
            for _ in range(steps):
                batch = next(batches)
                for id_, weight in zip(batch["id"].numpy(), batch["weight"].numpy(), strict=True):
                    seen[id_.decode()] += weight
            assert seen == Counter(dict.fromkeys(self.records, 1))


def _ids(batches: Sequence[Batch]) -> list[str]:
    return [id_.decode() for batch in batches for id_ in batch["id"]]


def _nearest(sizes: Sequence[Size], record: Record) -> Size:
    """Returns the size whose ratio is the nearest to that of a record."""
    ratio = record.features["image/height"][0] / record.features["image/width"][0]
    return min(sizes, key=lambda size: abs(np.log(size[0] / size[1] / ratio)))


def _by_row(batch: Batch) -> Batch:
    order = np.argsort(batch["row"])
    return {name: values[order] for name, values in batch.items()}


def _assert_equal(found: Batch, expected: Batch) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
