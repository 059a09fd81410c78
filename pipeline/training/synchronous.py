"""Steps of replicas in sync: each takes its slice of a batch, and all change the model as one."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class InSync:
    """The way of all strategies but ParameterServerStrategy; `coordinator.Coordinated` is that's.

    Attributes:
      evaluation_strategy: what the model is evaluated under.
      evaluation_model: what is evaluated.
    """

    def __init__(self, strategy: tf.distribute.Strategy, model: Any) -> None:
        self._strategy = strategy
        self.evaluation_strategy, self.evaluation_model = strategy, model

    def batches(self, make_dataset: Callable[[], Any]) -> Any:
        """What `take` takes batches from."""
        return iter(make_dataset())

    def take(
        self, take_steps: Callable[[Any, Any], Any], batches: Any, steps: int
    ) -> tuple[list[float], float]:
        """Takes steps.

        Args:
          take_steps: a tf.function of batches and a number of steps, which gives their losses,
            float32 [steps], and the seconds that they waited for input.
          batches: of `batches`.
          steps: how many.

        Returns:
          The same, as numbers.
        """
        losses, waited_s = take_steps(batches, tf.constant(steps))
        return losses.numpy().tolist(), float(waited_s)

    def agree(self, told: bool) -> bool:
        """Whether any worker says so; every worker must ask."""
        return bool(self._count(tf.constant(told)) > 0)

    @tf.function
    def _count(self, told: tf.Tensor) -> tf.Tensor:
        per_replica = self._strategy.run(lambda: tf.cast(told, tf.int32))
        return self._strategy.reduce("SUM", per_replica, axis=None)

    def is_same(self, number: int) -> bool:
        """Whether it is the same number on every worker; every worker must ask."""
        return len(set(self._gather(tf.constant([number], tf.int64)).numpy().tolist())) == 1

    @tf.function
    def _gather(self, number: tf.Tensor) -> tf.Tensor:
        return self._strategy.gather(self._strategy.run(lambda: number), axis=0)

    def prepare_evaluation(self) -> None:
        """Brings `evaluation_model` up to date: it is the model that is trained."""
