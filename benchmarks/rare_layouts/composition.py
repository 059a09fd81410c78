"""Batches themselves: how evenly layouts come, and how much gradients differ."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from benchmarks.rare_layouts.runs import Training, batches
from benchmarks.rare_layouts.settings import NATURAL, SETTINGS, Setting
from pipeline.records.info import DatasetInfo
from pipeline.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Figures of the batches of an order.

    Attributes:
      steps_to_all: steps until every layout has been seen; None if one was not.
      variance: variance of a layout's records in a batch over its mean, both added up over the
        layouts. It is 1 for records that are drawn independently, if no layout has a large share.
      longest_wait: most steps in a row without some layout.
      gradient_variance: variance of the gradient of a batch, added up over the weights, over the
        square of the length of the mean.
    """

    steps_to_all: int | None
    variance: float
    longest_wait: int
    gradient_variance: float


def compositions(
    settings: Mapping[str, Setting], training: Training, info: DatasetInfo
) -> dict[str, Composition]:
    """Measures the batches of the settings that have one phase, at the weights of one model.

    Gradients are taken where the natural order has trained for as many steps as lie between two
    evaluations: at random weights they say little, and late ones are mostly noise.
    """
    trainer = training.trainer(SETTINGS[NATURAL], info, seed=0)
    trainer.train(trainer.batches(), min(training.evaluate_every, training.steps))
    weights = trainer.model.get_weights()
    found = {}
    for name, setting in settings.items():
        # The others have batches that are here already: those of a head, or of another loss.
        if len(setting.phases) == 1 and not setting.new_head and not setting.logit_adjustment:
            trainer = training.trainer(setting, info, seed=0)
            counts = _counts(trainer, setting, steps=training.steps)
            trainer.model.set_weights(weights)
            found[name] = Composition(
                steps_to_all=steps_to_all(counts),
                variance=float(counts.var(axis=0).sum() / counts.mean(axis=0).sum()),
                longest_wait=longest_wait(counts),
                gradient_variance=_gradient_variance(trainer, batches(setting, trainer)),
            )
    return found


def composition_table(found: Mapping[str, Composition]) -> list[str]:
    """Makes the lines of a table with a row for each setting."""
    lines = [
        f"{'batches':<12}{'steps to all':>14}{'longest wait':>14}{'variance':>10}"
        f"{'of gradient':>13}"
    ]
    for name, each in found.items():
        first = "never" if each.steps_to_all is None else f"{each.steps_to_all:,}"
        lines.append(
            f"{name:<12}{first:>14}{each.longest_wait:>14,}{each.variance:>10.2f}"
            f"{each.gradient_variance:>13.2f}"
        )
    return lines


def _counts(trainer: Trainer, setting: Setting, *, steps: int) -> npt.NDArray[np.int64]:
    """Counts the records of each layout in each batch, int64 [steps, layouts]."""
    layouts = len(trainer.info.layouts)
    found = batches(setting, trainer)
    return np.array(
        [np.bincount(next(found)["label"].numpy(), minlength=layouts) for _ in range(steps)]
    )


def steps_to_all(counts: npt.NDArray[np.int64]) -> int | None:
    """The first step by which every layout has come; `counts` is int64 [steps, layouts]."""
    came = counts > 0
    return int(came.argmax(axis=0).max()) + 1 if came.any(axis=0).all() else None


def longest_wait(counts: npt.NDArray[np.int64]) -> int:
    """The most steps in a row without some layout; `counts` is int64 [steps, layouts].

    A layout that comes in steps 0, 1 and 5 of 6 is missing from 3 in a row.
    """
    steps, layouts = counts.shape
    waits = [
        np.diff(np.flatnonzero(counts[:, layout]), prepend=-1, append=steps).max() - 1
        for layout in range(layouts)
    ]
    return int(max(waits))


def _gradient_variance(trainer: Trainer, found: Iterator[Any], *, count: int = 64) -> float:
    """The variance of the gradient over `count` batches, over the square of the mean's length."""

    @tf.function(autograph=False)
    def gradient(batch: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            outputs = trainer.model(batch["image"], training=True)
            loss = tf.reduce_mean(trainer.task.loss(outputs, batch))
        gradients = tape.gradient(loss, trainer.model.trainable_variables)
        return tf.concat([tf.reshape(each, [-1]) for each in gradients], axis=0)

    gradients = np.stack([gradient(next(found)).numpy() for _ in range(count)])
    mean = gradients.mean(axis=0)
    # Unbiased: the mean of 64 gradients is itself off by a 64th of the variance.
    variance = gradients.var(axis=0, ddof=1).sum()
    return float(variance / (np.square(mean).sum() - variance / count))
