"""Training steps of workers that do not wait for each other, under ParameterServerStrategy."""

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipeline.distribution.parameter_server import worker_count


class ParameterServerSteps:
    """Runs training steps on whichever workers are free.

    Each step is a function that this process, the chief, schedules. A worker makes a batch, reads
    the variables from the parameter servers and updates them there. If a worker fails, another one
    repeats its step. It has the interface of `pipeline.training.synchronous.SynchronousSteps`.

    Attributes:
      evaluation_strategy: the default strategy, on the chief alone: workers that are restarted
        would give records twice.
      evaluation_model: a copy of the model in the memory of the chief, which reads the variables
        once per evaluation and not at every step.
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
          strategy: strategy of the cluster.
          model: model that is trained.
          counter: the optimizer's variable that counts steps.
          build: builds another such model.
        """
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._workers = worker_count(strategy)
        self._model, self._counter = model, counter
        self.evaluation_strategy = tf.distribute.get_strategy()
        self.evaluation_model = build()

    def batches(self, make_dataset: Callable[[], Any]) -> Any:
        """Makes an iterator over batches on each worker, for `run`."""
        return iter(self._coordinator.create_per_worker_dataset(make_dataset))

    def run(self, train: Any, batches: Any, steps: int) -> tuple[list[float], float, float]:
        """Runs steps as `SynchronousSteps.run` does.

        The seconds of waiting are the average of the workers. Those in which the graph was made are
        the chief's.
        """
        graphs, called = train.experimental_get_tracing_count(), time.monotonic()
        # Functions of one step each, as all of a function is done again where its worker is lost.
        # The number is a tensor: TensorFlow would trace `train` anew for each Python number.
        first, one = int(self._counter.numpy()), tf.constant(1)
        results = [self._coordinator.schedule(train, (batches, one)) for _ in range(steps)]
        is_traced = train.experimental_get_tracing_count() > graphs
        tracing_s = time.monotonic() - called if is_traced else 0.0
        self._coordinator.join()
        # Keras reads the counter, adds 1 and writes it: if two workers do so at once, one of them
        # does not count. A step that was repeated counts twice.
        self._counter.assign(first + steps)
        losses, waited_s, _ = zip(*(result.fetch() for result in results), strict=True)
        waited = float(sum(waited_s)) / self._workers
        return [float(loss[0]) for loss in losses], waited, tracing_s

    def any_worker(self, flag: bool) -> bool:
        """Returns the flag of the chief, which alone decides when to stop."""
        return flag

    def is_same(self, number: int) -> bool:
        """Returns True: only the chief has a number."""
        return True

    def prepare_evaluation(self) -> None:
        """Copies the variables from the parameter servers to `evaluation_model`."""
        pairs = zip(self.evaluation_model.weights, self._model.weights, strict=True)
        for copy, variable in pairs:
            copy.assign(variable.value)
