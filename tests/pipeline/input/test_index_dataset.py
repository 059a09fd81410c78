"""The plan inside the graph: NumPy's numbers, dealt out to pipelines."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.input.index_dataset import (
    Slice,
    TensorArrays,
    batch_places,
    evaluation_records,
    training_records,
)
from pipeline.records.table import Deck
from pipeline.sampling.batch_order import slice_rows
from pipeline.sampling.integer_math import NUMPY
from pipeline.sampling.plan import Plan, example_seeds
from tests.pipeline.sampling.test_plan import EPOCHS, PLANS, dealt

ARRAYS = TensorArrays()


def deck_of(counts: list[int], *, run_length: int = 1, spare: int = 0) -> Deck:
    """A deck of no files, whose strata of so many runs lie behind each other."""
    cards = np.array(counts, np.int64)
    sizes = cards * run_length + spare
    records = int(sizes.sum())
    return Deck(
        paths=("shard",),
        index_paths=("index",),
        index_starts=np.zeros((1, 4), np.int64),
        shard_ends=np.array([records]),
        offset=np.arange(records, dtype=np.int64),
        order=None,
        follows=np.ones(records, bool),
        categories=np.arange(len(counts)),
        first_records=np.cumsum(sizes) - sizes,
        counts=cards,
        spare=np.full(len(counts), spare),
        run_length=run_length,
    )


def flat(dataset: tf.data.Dataset) -> Iterator[int]:
    for vector in dataset.as_numpy_iterator():
        yield from vector.tolist()


def batch_records(deck: Deck, plan: Plan, step: int) -> np.ndarray:
    """Records of a global batch by NumPy, int64 [cards, run_length]."""
    epoch = plan.epoch(np.int64(step // plan.steps_per_epoch))
    first = deck.records(plan.batch(step), epoch, NUMPY)
    return first[:, None] + np.arange(deck.run_length)


@given(plan=PLANS, number=EPOCHS)
@settings(deadline=None, max_examples=25)
def test_tensorflow_computes_what_numpy_does(plan: Plan, number: int):
    expected = dealt(plan, number)
    step, row = (tf.constant(each) for each in np.divmod(np.arange(plan.places), plan.batch_cards))
    rows = plan.rows(plan.epoch(tf.constant(number, tf.int64), ARRAYS), step, row, ARRAYS)
    np.testing.assert_array_equal(rows.card, expected.card)
    np.testing.assert_array_equal(rows.stratum, expected.stratum)
    assert rows.card.dtype == rows.stratum.dtype == tf.int64


@pytest.mark.parametrize("step", [0, 10**9])
def test_tensorflow_makes_the_same_seeds(step: int):
    row = np.arange(1000)
    made = example_seeds(2**32 - 1, tf.constant(step, tf.int64), tf.constant(row), ARRAYS)
    np.testing.assert_array_equal(made, example_seeds(2**32 - 1, np.int64(step), row))


DECKS = {
    "records": deck_of([40, 17, 3, 1, 1]),
    "runs": deck_of([7, 6, 6], run_length=4, spare=3),
    "one card": deck_of([1]),
    # More steps an epoch than are computed at once.
    "long": deck_of([9000, 1001]),
}


@pytest.mark.parametrize(
    ("name", "batch_cards", "start_step", "steps", "pipelines"),
    [
        ("records", 12, 0, 12, 1),
        ("records", 12, 7, 9, 3),
        ("records", 12, 10**9 + 1, 7, 2),
        ("runs", 8, 2, 11, 2),
        ("one card", 12, 0, 3, 6),
        ("long", 12, 600, 300, 1),
    ],
)
def test_pipelines_make_the_global_batches_together(
    name: str, batch_cards: int, start_step: int, steps: int, pipelines: int
):
    """Each with two replicas: its batches of a step follow each other."""
    deck, replicas = DECKS[name], 2 * pipelines
    plan = Plan(counts=deck.counts, batch_cards=batch_cards, seed=5)
    each = batch_cards // replicas
    made: dict[tuple[int, int], list[int]] = {}
    for number in range(pipelines):
        part = Slice.of(tf.distribute.InputContext(pipelines, number, replicas))
        records = flat(training_records(deck, plan, part, start_step=start_step))
        places = batch_places(part, start_step=start_step).take(2 * steps)
        for step, replica in places.as_numpy_iterator():
            assert (step, replica) not in made, "two pipelines make the same batch"
            made[step, replica] = [next(records) for _ in range(each * deck.run_length)]
    assert made.keys() == {
        (step, replica)
        for step in range(start_step, start_step + steps)
        for replica in range(replicas)
    }
    for (step, replica), records in made.items():
        order = slice_rows(
            step, np.int64(replica), replicas=replicas, batch_cards=batch_cards, seed=plan.seed
        )
        assert records == batch_records(deck, plan, step)[order].ravel().tolist()


@pytest.mark.parametrize(("workers", "start_step"), [(2, 0), (3, 8)])
def test_workers_take_turns(workers: int, start_step: int):
    """As under ParameterServerStrategy, where a worker learns its number at run time."""
    deck = DECKS["records"]
    plan = Plan(counts=deck.counts, batch_cards=12)
    made = {}
    for number in range(workers):
        part = Slice(workers=workers, worker=tf.constant(number, tf.int64))
        records = flat(training_records(deck, plan, part, start_step=start_step))
        places = batch_places(part, start_step=start_step).take(4)
        for step, replica in places.as_numpy_iterator():
            assert replica == 0
            assert (step - start_step) % workers == number
            made[step] = [next(records) for _ in range(12)]
    assert sorted(made) == list(range(start_step, start_step + 4 * workers))
    for step, records in made.items():
        order = slice_rows(step, np.int64(0), replicas=1, batch_cards=12, seed=plan.seed)
        assert records == batch_records(deck, plan, step)[order].ravel().tolist()


@pytest.mark.parametrize(
    ("pipelines", "replicas", "workers"), [(1, 1, 1), (1, 2, 1), (2, 4, 1), (1, 1, 3)]
)
def test_evaluation_takes_each_record_once(pipelines: int, replicas: int, workers: int):
    deck, batch = DECKS["records"], 8
    steps = -(-len(deck) // (batch * workers)) * workers
    made = {}
    for number in range(pipelines):
        own = range(number * replicas // pipelines, (number + 1) * replicas // pipelines)
        for worker in range(workers):
            part = Slice(replicas=replicas, own=own, workers=workers, worker=worker)
            dataset = evaluation_records(deck, part, global_batch_size=batch, steps=steps)
            places = batch_places(part, start_step=0, steps=steps)
            own_batches = steps // workers * len(own)
            pairs = list(tf.data.Dataset.zip((places, dataset)).take(2 * own_batches))
            for first, again in zip(pairs[:own_batches], pairs[own_batches:], strict=True):
                tf.nest.map_structure(np.testing.assert_array_equal, again, first)
            for (step, replica), records in pairs[:own_batches]:
                made[int(step), int(replica)] = records.numpy().tolist()
    assert sorted(made) == [(step, replica) for step in range(steps) for replica in range(replicas)]
    in_order = [record for place in sorted(made) for record in made[place]]
    assert len(in_order) == steps * batch
    assert in_order[: len(deck)] == list(range(len(deck)))
    assert set(in_order[len(deck) :]) <= {len(deck) - 1}


def test_slices_of_replicas():
    part = Slice.of(tf.distribute.InputContext(3, 1, 6))
    assert (part.replicas, list(part.own)) == (6, [2, 3])
    plan = Plan(counts=np.array([30]), batch_cards=12)
    step = tf.constant([[0], [10**9]], tf.int64)
    rows = part.cards(plan, step, np.array(part.own, np.int64)).numpy()
    assert np.sort(rows).tolist() == [[[2, 8], [3, 9]]] * 2
