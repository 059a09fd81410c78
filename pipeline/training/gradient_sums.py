"""Sums of gradients on parameter servers, to which workers add what they have computed."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from pipeline.training.gradients import Gradients


class Mean(NamedTuple):
    """The mean of what was added for a step.

    Attributes:
      gradients: mean gradient of each variable, in its shape, on its parameter server; None for
        a variable that never gets one.
      figures: mean figures, float32 [figures].
      count: how often something was added, int32 [].
    """

    gradients: Gradients
    figures: tf.Tensor
    count: tf.Tensor


class GradientSums:
    """Adds up the gradients of a step, and drops those of steps that are over.

    Each parameter server has one accumulator for all variables that it holds. A gradient comes as
    one vector: with two variables of 2 and 3 elements and two figures, that is
    `[1, figure, figure, g, g, h, h, h]`, whose first element counts. So a gradient is added as a
    whole, or not at all.

    The steps are counted here from 0 on. `take` begins the next one.

    See "Revisiting Distributed Synchronous SGD" by Chen, Pan, Monga, Bengio and Jozefowicz (2016),
    and `tf.raw_ops.ResourceConditionalAccumulator`.
    """

    def __init__(self, variables: Sequence[keras.Variable], *, figures: int) -> None:
        """Makes the accumulators.

        Args:
          variables: float32 variables, each on a parameter server.
          figures: number of figures that come with each gradient.
        """
        self._shapes = [tuple(variable.shape) for variable in variables]
        self._figures = figures
        # The places in `variables` of those that a device holds.
        self._held: dict[str, list[int]] = defaultdict(list)
        for place, variable in enumerate(variables):
            self._held[variable.value.device].append(place)
        self._accumulators = {device: _accumulator(device) for device in self._held}
        self._unused: set[int] = set()  # places of variables without a gradient

    def add(self, step: tf.Tensor, gradients: Gradients, figures: tf.Tensor) -> list[tf.Operation]:
        """Adds gradients, in a graph that a worker runs, and returns the operations that do so.

        Args:
          step: the step whose weights they were computed from, int64 [].
          gradients: one for each variable, float32, in the order of the variables; None for one
            that gets none, which must be so in all graphs.
          figures: float32 [figures].
        """
        self._unused = {place for place, gradient in enumerate(gradients) if gradient is None}
        head = tf.concat([tf.ones([1]), figures], 0)
        added = []
        for device, places in self._held.items():
            flat = [self._flat(place, gradients[place]) for place in places]
            vector = tf.concat([head, *flat], 0)
            with tf.device(device):
                operation = tf.raw_ops.ResourceAccumulatorApplyGradient(
                    handle=self._accumulators[device], local_step=step, gradient=vector
                )
            added.append(operation)
        return added

    def _flat(self, place: int, gradient: tf.Tensor | None) -> tf.Tensor:
        dense = tf.zeros(self._shapes[place]) if gradient is None else gradient
        return tf.reshape(dense, [-1])

    @tf.function(autograph=False)
    def count(self) -> tf.Tensor:
        """Returns how many gradients of the step have come to every server, int32 []."""
        counts = []
        for device, accumulator in self._accumulators.items():
            with tf.device(device):
                counts.append(tf.raw_ops.ResourceAccumulatorNumAccumulated(handle=accumulator))
        return tf.reduce_min(counts)

    def take(self, *, times: int = 1) -> Mean:
        """Takes the mean gradients of a step, of which one or more have come, and ends the step.

        From then on, gradients of that step are dropped. Use it in a graph, which must be traced
        after that of `add`.

        Args:
          times: what each mean is multiplied by.
        """
        gradients: Gradients = [None] * len(self._shapes)
        figures, counts = [], []
        for device, places in self._held.items():
            with tf.device(device):
                total = tf.raw_ops.ResourceAccumulatorTakeGradient(
                    handle=self._accumulators[device], num_required=1, dtype=tf.float32
                )
                mean = total[1:] * (times / total[0])
                sizes = [int(np.prod(self._shapes[place])) for place in places]
                of_figures, *flat = tf.split(mean, [self._figures, *sizes])
                for place, gradient in zip(places, flat, strict=True):
                    if place not in self._unused:
                        gradients[place] = tf.reshape(gradient, self._shapes[place])
            figures.append(of_figures)
            counts.append(tf.cast(total[0], tf.int32))
        # A gradient may come to one server just before its end of the step, and to another just
        # after it. The figures are those of the first server.
        return Mean(gradients, figures[0], counts[0])


def _accumulator(device: str) -> tf.Tensor:
    with tf.device(device):
        # By a name that is used twice, it would be the one that an earlier chief left there.
        return tf.raw_ops.ResourceConditionalAccumulator(
            dtype=tf.float32, shape=[None], shared_name=uuid.uuid4().hex, reduction_type="SUM"
        )
