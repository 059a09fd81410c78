"""Training steps under ParameterServerStrategy that wait for all workers but the slowest."""

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipeline.distribution.parameter_server import allow_updates_by_chief
from pipeline.training.gradient_count import GradientCount
from pipeline.training.gradient_sums import GradientSums
from pipeline.training.gradients import Gradients
from pipeline.training.options import TrainOptions
from pipeline.training.parameter_server import ChiefSteps
from pipeline.training.progress import Progress

_POLL_S = 0.001
_FIGURES = 2  # of a gradient: its loss, and the seconds that it waited for input


class BackupWorkerSteps(ChiefSteps):
    """Runs steps that take the first N gradients of N + B workers, and drop those of the others.

    A global batch is N gradients, each of a batch of its N-th part. The weights change once a step,
    by the mean of its gradients, so a step learns as much as one of N workers in lock-step; but it
    does not wait for workers that are slow now, or lost. With N = 2 and B = 1:

        worker 0  [step 0][step 1][ step 2 ]
        worker 1  [ step 0 ][step 1][ step 2 ]
        worker 2  [     step 0     ][step 2][step 3]

    Here, worker 2 ends its gradient of step 0 when step 1 is over. It is dropped, and the worker
    begins one of the step that is under way. The source is "Revisiting Distributed Synchronous SGD"
    by Chen, Pan, Monga, Bengio and Jozefowicz (2016). There, each worker computes one gradient a
    step; here, where more than B are busy with earlier steps, others compute two.
    """

    def __init__(
        self,
        strategy: tf.distribute.ParameterServerStrategy,
        model: Any,
        *,
        counter: Any,
        build: Callable[[], Any],
        backups: int,
        next_batch: Callable[[Any], tuple[Any, tf.Tensor]],
        gradients: Callable[[Any], tuple[tf.Tensor, Gradients]],
        update: Callable[[Gradients], None],
    ) -> None:
        """Connects to the workers, and makes the accumulators of gradients.

        Args:
          strategy: strategy of the cluster, whose workers have one device each.
          model: model that is trained.
          counter: the optimizer's variable that counts steps.
          build: builds another such model.
          backups: B, less than the number of workers.
          next_batch: takes a batch from an iterator, and tells how many seconds it waited for it.
          gradients: computes, in a replica and from a batch, its part of a global batch's loss,
            float32 [], and of the gradient of each variable.
          update: changes the model, in a replica, by the gradients of a global batch.
        """
        super().__init__(strategy, model, counter=counter, build=build)
        self.batches_per_step = self._workers - backups
        self._count = GradientCount(needed=self.batches_per_step, workers=self._workers)
        self._strategy = strategy
        allow_updates_by_chief(strategy)
        self._next, self._gradients, self._update = next_batch, gradients, update
        self._sums = GradientSums(model.trainable_variables, figures=_FIGURES)
        with strategy.scope():
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)  # as `sums` counts them
            self._computed = tf.Variable(0, dtype=tf.int64, trainable=False)

    def run(self, batches: Any, steps: int) -> Progress:
        """Runs steps as `SynchronousSteps.run` does, and counts the gradients that were dropped.

        A gradient that is under way at the end of the call counts in the call in which it ends.
        """
        late = self._count.late
        graphs, called = self._add.experimental_get_tracing_count(), time.monotonic()
        self._schedule(batches)
        self._end_step.get_concrete_function()  # while workers compute
        is_traced = self._add.experimental_get_tracing_count() > graphs
        tracing_s = time.monotonic() - called if is_traced else 0.0
        losses, waited_s = [], 0.0
        for index in range(steps):
            if index:
                self._schedule(batches)
            self._wait(batches)
            figures, count = self._end_step()
            loss, waited = figures.numpy().tolist()
            losses.append(loss)
            waited_s += waited
            self._count.end_step(used=int(count))
            # Read again, as a worker must not see the number of the step before: the chief's ops
            # return before a server has carried them out.
            self._step.assign_add(1).numpy()
        return Progress(
            step=int(self._counter.numpy()),
            losses=tuple(losses),
            waited_s=waited_s,
            tracing_s=tracing_s,
            dropped=self._count.late - late,
        )

    def _schedule(self, batches: Any) -> None:
        """Asks for a gradient of each worker that is not busy with an earlier step."""
        if self._coordinator.done():
            self._count.nobody_is_busy(computed=int(self._computed.numpy()))
        self._ask(batches, self._count.begin_step())

    def _ask(self, batches: Any, gradients: int) -> None:
        for _ in range(gradients):
            self._coordinator.schedule(self._add, (batches,))

    def _wait(self, batches: Any) -> None:
        """Waits for the gradients of a step, and asks workers that were late for another one.

        Raises:
          tf.errors.OpError: a worker could not compute a gradient, or a server is lost.
        """
        while True:
            come, computed = self._state().numpy().tolist()
            self._ask(batches, self._count.look(come=come, computed=computed))
            if come >= self.batches_per_step:
                return
            self._coordinator.done()  # raises what a worker has raised
            time.sleep(_POLL_S)

    @tf.function(autograph=False)
    def _state(self) -> tf.Tensor:
        """Returns how many gradients of the step have come, and how many of all were computed."""
        # In this order: one that is added now must not look like one that was late.
        computed = self._computed.read_value()
        with tf.control_dependencies([computed]):
            come = tf.cast(self._sums.count(), tf.int64)
        return tf.stack([come, computed])

    @tf.function(autograph=False)
    def _add(self, batches: Any) -> None:
        """Computes a gradient on a worker, and adds it to those of the step that is under way."""
        batch, waited_s = self._next(batches)
        step, loss, gradients = self._strategy.run(self._replica_gradients, (batch,))
        figures = tf.stack([loss, tf.cast(waited_s, tf.float32)])
        # TensorFlow orders only what is done to the same resource.
        with tf.control_dependencies(self._sums.add(step, gradients, figures)):
            self._computed.assign_add(1)

    def _replica_gradients(self, batch: Any) -> tuple[tf.Tensor, tf.Tensor, Gradients]:
        # First the number of the step, then the weights, so they are not those of an earlier one.
        # It must stand here: `strategy.run` has a thread, which knows of no dependencies.
        step = self._step.read_value()
        with tf.control_dependencies([step]):
            loss, gradients = self._gradients(batch)
        return step, loss, gradients

    @tf.function(autograph=False)
    def _end_step(self) -> tuple[tf.Tensor, tf.Tensor]:
        mean = self._sums.take(times=self.batches_per_step)
        with tf.device("CPU:0"):  # an all-reduce, even of one replica, wants a device
            self._strategy.run(self._update, (mean.gradients,))
        return mean.figures, mean.count


def check_backup_workers(options: TrainOptions, *, workers: int, devices: int) -> None:
    """Checks that steps can wait for all workers but `options.backup_workers`.

    Args:
      options: options with a number of backup workers.
      workers: workers of the cluster.
      devices: devices of each.

    Raises:
      ValueError: they can't.
    """
    backups = options.backup_workers or 0
    if devices > 1:
        raise ValueError(
            f"backup_workers {backups} needs workers with one device each, and they have "
            f"{devices}: start a worker for each device"
        )
    if backups >= workers:
        raise ValueError(
            f"backup_workers {backups} leaves no worker to wait for, as the cluster has {workers}: "
            f"choose 0 to {workers - 1}"
        )
    needed = workers - backups
    if options.global_batch_size % (needed * options.accumulate):
        raise ValueError(
            f"global_batch_size {options.global_batch_size} can't be divided by the {needed} "
            f"workers that a step waits for, and the {options.accumulate} parts that they "
            f"accumulate: choose a multiple of {needed * options.accumulate}"
        )
