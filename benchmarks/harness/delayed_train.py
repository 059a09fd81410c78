"""Runs `pipeline.train` on workers that are late now and then.

Use: `python -m benchmarks.harness.delayed_train STEP_S PROBABILITY FACTOR ARGUMENT…`. A worker that
has read the weights and computed a gradient sleeps as long as `stragglers.Delays` says.
"""

import os
import sys
from unittest import mock

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf

from benchmarks.harness.stragglers import Delays
from pipeline import train
from pipeline.training.gradients import Gradients
from pipeline.training.trainer import Trainer


class DelayedTrainer(Trainer):
    """A trainer of steps that sleep."""

    delays: Delays

    def _replica_gradients(self, batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, Gradients]:
        loss, gradients = super()._replica_gradients(batch)
        # By the clock: from the run's seed, all workers would draw the same, and be late together.
        clock = tf.cast(tf.timestamp() * 1e6, tf.int64)
        draw = tf.random.stateless_uniform([], seed=tf.stack([clock, tf.zeros([], tf.int64)]))
        is_late = draw < self.delays.probability
        seconds = tf.where(is_late, self.delays.step_s * self.delays.factor, self.delays.step_s)
        computed = [gradient for gradient in gradients if gradient is not None]
        with tf.control_dependencies([loss, *computed]):
            slept = _sleep(seconds)
        with tf.control_dependencies([slept]):
            delayed = [
                None if gradient is None else tf.identity(gradient) for gradient in gradients
            ]
            return tf.identity(loss), delayed


def _sleep(seconds: tf.Tensor) -> tf.Tensor:
    """Sleeps in a graph; a Python function could not, on a worker."""
    element = tf.data.Dataset.from_tensors(0)
    sleeping = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(element),
        # Half of it, as it sleeps before its element, and again before its end.
        sleep_microseconds=tf.cast(seconds * 0.5e6, tf.int64),
        output_types=[tf.int32],
        output_shapes=[[]],
    )
    dataset = tf.data.experimental.from_variant(sleeping, tf.TensorSpec([], tf.int32))
    return dataset.reduce(0, lambda _, value: value)


def main() -> int:
    """Runs the command."""
    step_s, probability, factor, *arguments = sys.argv[1:]
    DelayedTrainer.delays = Delays(
        step_s=float(step_s), probability=float(probability), factor=float(factor)
    )
    with mock.patch.object(train, "Trainer", DelayedTrainer):
        return train.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
