"""Training steps that a chief schedules, under ParameterServerStrategy."""

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipeline.distribution.parameter_server import worker_count
from pipeline.training.progress import Progress


class ChiefSteps:
    """The chief, which schedules work on whichever workers are free.

    If a worker fails, another one repeats its work. With `run`, which subclasses add, it has the
    interface of `pipeline.training.synchronous.SynchronousSteps`.

    Attributes:
      evaluation_strategy: the default strategy, on the chief alone: workers that are restarted
        would give records twice.
      evaluation_model: a copy of the model in the memory of the chief, which reads the variables
        once per evaluation and not at every step.
      batches_per_step: batches, of those that `batches` makes, in a global batch.
    """

    batches_per_step = 1

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


class AsynchronousSteps(ChiefSteps):
    """Runs training steps of workers that do not wait for each other.

    A worker makes a batch, reads the variables from the parameter servers and updates them there.
    """

    def __init__(
        self,
        strategy: tf.distribute.ParameterServerStrategy,
        model: Any,
        *,
        train: Any,
        counter: Any,
        build: Callable[[], Any],
    ) -> None:
        """Connects to the workers; `train` is that of `SynchronousSteps`."""
        super().__init__(strategy, model, counter=counter, build=build)
        self._train = train

    def run(self, batches: Any, steps: int) -> Progress:
        """Runs steps as `SynchronousSteps.run` does.

        The seconds of waiting are the average of the workers. Those in which the graph was made are
        the chief's.
        """
        graphs, called = self._train.experimental_get_tracing_count(), time.monotonic()
        # Functions of one step each, as all of a function is done again where its worker is lost.
        # The number is a tensor: TensorFlow would trace the function anew for each Python number.
        first, one = int(self._counter.numpy()), tf.constant(1)
        results = [self._coordinator.schedule(self._train, (batches, one)) for _ in range(steps)]
        is_traced = self._train.experimental_get_tracing_count() > graphs
        tracing_s = time.monotonic() - called if is_traced else 0.0
        self._coordinator.join()
        # Keras reads the counter, adds 1 and writes it: if two workers do so at once, one of them
        # does not count. A step that was repeated counts twice.
        self._counter.assign(first + steps)
        losses, waited_s, _ = zip(*(result.fetch() for result in results), strict=True)
        waited = float(sum(waited_s)) / self._workers
        return Progress(
            step=first + steps,
            losses=tuple(float(loss[0]) for loss in losses),
            waited_s=waited,
            tracing_s=tracing_s,
        )
