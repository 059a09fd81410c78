"""The plan inside the graph: from a step to where the records of its batches lie."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from pipeline.records.table import Deck
from pipeline.sampling.batch_order import slice_rows
from pipeline.sampling.plan import Plan

_BLOCK_ROWS = 8192  # computed at once: enough that the arithmetic outweighs the calls
_FOREVER = np.iinfo(np.int64).max


class TensorArrays:
    """`pipeline.sampling.integer_math.Arrays` of TensorFlow."""

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return tf.where(condition, tf.cast(a, tf.int64), tf.cast(b, tf.int64))

    def searchsorted(self, ascending: Any, values: Any) -> Any:
        return tf.searchsorted(ascending, values, side="right", out_type=tf.int64)

    def take(self, array: Any, positions: Any) -> Any:
        return tf.gather(array, positions)

    def argsort(self, values: Any) -> Any:
        return tf.cast(tf.argsort(values), tf.int64)

    def cumsum(self, values: Any) -> Any:
        return tf.cumsum(values)

    def shift_right(self, values: Any, bits: int) -> Any:
        return tf.bitwise.right_shift(
            tf.convert_to_tensor(values, tf.int64), tf.constant(bits, tf.int64)
        )

    def iterate(self, times: int, body: Callable[[Any, Any], Any], values: Any) -> Any:
        def step(number: Any, values: Any) -> tuple[Any, Any]:
            return number + 1, body(number, values)

        start = tf.constant(0, tf.int64)
        return tf.while_loop(lambda number, _: number < times, step, [start, values])[1]


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The part of the global batches that one input pipeline makes.

    Attributes:
      replicas: replicas that share a global batch.
      own: those that the pipeline feeds, one batch each, one after the other.
      workers: pipelines of which each makes every `workers`-th global batch.
      worker: which of these this is; a tensor, where it is known only at run time.
    """

    replicas: int = 1
    own: range = range(1)
    workers: int = 1
    worker: Any = 0

    @classmethod
    def of(cls, context: tf.distribute.InputContext) -> "Slice":
        """The slice of an input pipeline that feeds one or more of the replicas in sync.

        Raises:
          ValueError: the pipelines can't feed equally many.
        """
        replicas, pipelines = context.num_replicas_in_sync, context.num_input_pipelines
        if replicas % pipelines:
            raise ValueError(
                f"{pipelines} input pipelines can't feed {replicas} replicas evenly: choose a "
                f"multiple of {pipelines} for the InputContext's num_replicas_in_sync"
            )
        each = replicas // pipelines
        first = context.input_pipeline_id * each
        return cls(replicas=replicas, own=range(first, first + each))

    def cards(self, plan: Plan, step: tf.Tensor, replica: Any) -> tf.Tensor:
        """Rows of global batches of cards that a replica gets, in their order.

        Args:
          plan: the plan.
          step: int64 [...], global step over all epochs.
          replica: int64 [...], which broadcasts with `step`.

        Returns:
          int64 [..., batch_cards / replicas].
        """
        return slice_rows(
            step,
            replica,
            replicas=self.replicas,
            batch_cards=plan.batch_cards,
            seed=plan.seed,
            xp=TensorArrays(),
        )


def training_records(deck: Deck, plan: Plan, part: Slice, *, start_step: int) -> tf.data.Dataset:
    """Numbers of the records of all batches of a slice from a step on, without end.

    Returns:
      Vectors, int64 [global_batch_size / replicas], one a batch.
    """
    steps = plan.steps_per_epoch
    own, slice_cards = np.array(part.own, np.int64), plan.batch_cards // part.replicas
    step_cards = len(own) * slice_cards
    arrays = TensorArrays()

    def of_epoch(number: tf.Tensor) -> tf.data.Dataset:
        epoch = plan.epoch(number, arrays)
        first = tf.maximum(start_step - number * steps, 0)
        # Of the steps from the very first on, every `workers`-th is this worker's.
        first = first + (start_step + part.worker - number * steps - first) % part.workers

        def of_steps(step: tf.Tensor) -> tf.Tensor:
            row = tf.reshape(part.cards(plan, number * steps + step[:, None], own), [-1])
            dealt = plan.rows(epoch, tf.repeat(step, step_cards), row, arrays)
            run = tf.range(deck.run_length, dtype=tf.int64)
            records = deck.records(dealt, epoch, arrays)[:, None] + run
            return tf.reshape(records, [-1, slice_cards * deck.run_length])

        block = max(1, _BLOCK_ROWS // step_cards)
        blocks = tf.data.Dataset.range(first, steps, part.workers).batch(block).map(of_steps)
        return blocks.flat_map(tf.data.Dataset.from_tensor_slices)

    return tf.data.Dataset.range(start_step // steps, _FOREVER).flat_map(of_epoch)


def evaluation_records(
    deck: Deck, part: Slice, *, global_batch_size: int, steps: int | None
) -> tf.data.Dataset:
    """Numbers of the records of all batches of a slice, in the order of the shards, without end.

    A replica's rows of a global batch are neighbours. Rows behind the last record hold it again.
    After `steps` global batches, which hold each record, the first record comes again; with None
    it never does.

    Returns:
      Vectors, int64 [global_batch_size / replicas], one a batch.
    """
    size = global_batch_size // part.replicas

    def of_batch(step: tf.Tensor, replica: tf.Tensor) -> tf.Tensor:
        first = step * global_batch_size + replica * size
        return tf.minimum(first + tf.range(size, dtype=tf.int64), len(deck) - 1)

    return batch_places(part, start_step=0, steps=steps).map(of_batch)


def batch_places(part: Slice, *, start_step: int, steps: int | None = None) -> tf.data.Dataset:
    """(step, replica) of each batch of a slice, one after the other; int64 scalars.

    They are those of all steps from `start_step` on. With `steps`, those below it come again and
    again.
    """

    def of_step(step: tf.Tensor) -> tf.data.Dataset:
        own = tf.data.Dataset.range(part.own.start, part.own.stop)
        return own.map(lambda replica: (step, replica))

    first = start_step + tf.cast(part.worker, tf.int64)
    stop = _FOREVER if steps is None else steps
    numbers = tf.data.Dataset.range(first, stop, part.workers)
    return (numbers if steps is None else numbers.repeat()).flat_map(of_step)
