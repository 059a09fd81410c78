"""Training steps that all replicas take together."""

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipeline.training.progress import Progress


class SynchronousSteps:
    """Runs training steps in lockstep on all replicas.

    Each replica takes its part of a global batch, and all of them update the model as one. Every
    strategy but ParameterServerStrategy works like this, see
    `pipeline.training.parameter_server.ChiefSteps`.

    Attributes:
      evaluation_strategy: strategy under which the model is evaluated.
      evaluation_model: model that is evaluated.
      batches_per_step: batches, of those that `batches` makes, in a global batch.
    """

    batches_per_step = 1

    def __init__(
        self, strategy: tf.distribute.Strategy, model: Any, *, train: Any, counter: Any
    ) -> None:
        """Keeps what it is given.

        Args:
          strategy: the strategy.
          model: model that is trained.
          train: a tf.function of batches and a number of steps, int32 []. It returns the losses of
            the steps, float32 [steps], the seconds that they waited for input, float64 [], and when
            they began, in seconds since 1970, float64 [].
          counter: the optimizer's variable that counts steps.
        """
        self._strategy, self._train, self._counter = strategy, train, counter
        self.evaluation_strategy, self.evaluation_model = strategy, model

    def batches(self, make_dataset: Callable[[], Any]) -> Any:
        """Makes an iterator over batches, for `run`."""
        return iter(make_dataset())

    def run(self, batches: Any, steps: int) -> Progress:
        """Runs some steps on batches of the iterator of `batches`."""
        graphs, called = self._train.experimental_get_tracing_count(), time.time()
        losses, waited_s, began = self._train(batches, tf.constant(steps))
        # Until the first operation, TensorFlow traces the step and optimizes its graph.
        is_traced = self._train.experimental_get_tracing_count() > graphs
        return Progress(
            losses=tuple(losses.numpy().tolist()),
            step=int(self._counter.numpy()),
            waited_s=float(waited_s),
            tracing_s=float(began) - called if is_traced else 0.0,
        )

    def any_worker(self, flag: bool) -> bool:
        """Tells whether the flag is set on any worker; every worker must call it.

        A SIGTERM may come to one worker alone, or to several at different steps. A worker that left
        the loop by itself would leave the others waiting for it, so all exchange their flags at the
        same step.
        """
        return bool(self._count(tf.constant(flag)) > 0)

    @tf.function(autograph=False)
    def _count(self, flag: tf.Tensor) -> tf.Tensor:
        # Each replica brings the flag of its own worker, so this counts replicas.
        per_replica = self._strategy.run(lambda: tf.cast(flag, tf.int32))
        return self._strategy.reduce("SUM", per_replica, axis=None)

    def is_same(self, number: int) -> bool:
        """Tells whether a number is the same on every worker; every worker must call it."""
        # All numbers and not their sum, in which 1 and 3 would look like 2 and 2.
        return len(set(self._gather(tf.constant([number], tf.int64)).numpy().tolist())) == 1

    @tf.function(autograph=False)
    def _gather(self, number: tf.Tensor) -> tf.Tensor:
        return self._strategy.gather(self._strategy.run(lambda: number), axis=0)

    def prepare_evaluation(self) -> None:
        """Does nothing: `evaluation_model` is the model that is trained."""
