"""Steps of workers that wait for nobody, under ParameterServerStrategy.

Every step is a function that this process, the chief, schedules: whichever worker is free makes a
batch, reads the variables off the parameter servers and changes them there. A step that fails with
its worker is taken by another one.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipeline.dataset import worker_count


class Coordinated:
    """What `in_sync.InSync` is for other strategies.

    Attributes:
      evaluation_strategy: the chief's own, as workers that are restarted would give records twice.
      evaluation_model: a copy of the model in the memory of the chief, which reads the variables
        once an evaluation, not at every step.
    """

    def __init__(
        self,
        strategy: tf.distribute.ParameterServerStrategy,
        model: Any,
        *,
        counter: Any,
        build: Callable[[], Any],
    ) -> None:
        """Connects to the workers.

        Args:
          strategy: whose workers take the steps.
          model: what they train.
          counter: the optimiser's variable that counts steps.
          build: makes another such model.
        """
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._workers = worker_count(strategy)
        self._model, self._counter = model, counter
        self.evaluation_strategy = tf.distribute.get_strategy()
        self.evaluation_model = build()

    def batches(self, make_dataset: Callable[[], Any]) -> Any:
        """An iterator on each worker."""
        return iter(self._coordinator.create_per_worker_dataset(make_dataset))

    def take(
        self, take_steps: Callable[[Any, Any], Any], batches: Any, steps: int
    ) -> tuple[list[float], float]:
        """As of `InSync`; the seconds are the workers' average."""
        first, one = int(self._counter.numpy()), tf.constant(1)
        taken = [self._coordinator.schedule(take_steps, (batches, one)) for _ in range(steps)]
        self._coordinator.join()
        # Keras reads the counter, adds 1 and writes it: of two workers that do so at once, one
        # counts. A step that was taken twice counts twice.
        self._counter.assign(first + steps)
        losses, waited_s = zip(*(each.fetch() for each in taken), strict=True)
        return [float(each[0]) for each in losses], float(sum(waited_s)) / self._workers

    def agree(self, told: bool) -> bool:
        """Only the chief is asked."""
        return told

    def is_same(self, number: int) -> bool:
        """Only the chief has a number."""
        return True

    def prepare_evaluation(self) -> None:
        """Copies the variables from the parameter servers."""
        pairs = zip(self.evaluation_model.weights, self._model.weights, strict=True)
        for copy, variable in pairs:
            copy.assign(variable.value)
