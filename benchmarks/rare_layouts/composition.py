"""Batches themselves: how evenly layouts come, and how much gradients differ."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from benchmarks.rare_layouts.runs import Training, batches
from benchmarks.rare_layouts.settings import NATURAL, SETTINGS, Setting
from pipeline.records.info import DatasetInfo
from pipeline.training.trainer import Trainer

_GRADIENTS = 192  # batches: of 64, the variance differed by a fifth from one sample to another


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Figures of the batches of an order.

    Attributes:
      steps_to_all: steps until every layout has been seen; None if one was not.
      variance: variance of a layout's records in a batch over its mean, both added up over the
        layouts. It is 1 for records that are drawn independently, if no layout has a large share.
      longest_wait: most steps in a row without some layout.
      gradient_variances: variance of the gradient of a batch, added up over the weights, over that
        of the natural order at the same weights; of the model of each seed.
    """

    steps_to_all: int | None
    variance: float
    longest_wait: int
    gradient_variances: list[float]


def compositions(
    settings: Mapping[str, Setting], training: Training, info: DatasetInfo, *, seeds: int
) -> dict[str, Composition]:
    """Measures the batches of the settings that have one phase.

    Gradients are taken where the natural order has trained for as many steps as lie between two
    evaluations: at random weights they say little, and late ones are mostly noise.
    """
    # The others have batches that are here already: those of a head, or of another loss.
    measured = {
        name: setting
        for name, setting in settings.items()
        if len(setting.phases) == 1 and not setting.new_head and not setting.logit_adjustment
    }
    variances: list[dict[str, float]] = []
    for seed in range(seeds):
        natural = training.trainer(SETTINGS[NATURAL], info, seed=seed)
        natural.train(natural.batches(), min(training.evaluate_every, training.steps))
        weights = natural.model.get_weights()
        variances.append({})
        for name, setting in measured.items():
            trainer = training.trainer(setting, info, seed=seed)
            trainer.model.set_weights(weights)
            taken = itertools.islice(batches(setting, trainer), min(_GRADIENTS, training.steps))
            variances[-1][name] = _gradient_variance(trainer, taken)
    found = {}
    for name, setting in measured.items():
        counts = _counts(training.trainer(setting, info, seed=0), setting, steps=training.steps)
        found[name] = Composition(
            steps_to_all=steps_to_all(counts),
            variance=float(counts.var(axis=0).sum() / counts.mean(axis=0).sum()),
            longest_wait=longest_wait(counts),
            gradient_variances=[of[name] / of[NATURAL] for of in variances],
        )
    return found


def composition_table(found: Mapping[str, Composition]) -> list[str]:
    """Makes the lines of a table with a row for each setting."""
    lines = [
        f"{'batches':<12}{'steps to all':>14}{'longest wait':>14}{'variance':>10}"
        "  of the gradient, over the first"
    ]
    for name, each in found.items():
        first = "never" if each.steps_to_all is None else f"{each.steps_to_all:,}"
        gradient = ", ".join(f"{ratio:.2f}" for ratio in each.gradient_variances)
        lines.append(
            f"{name:<12}{first:>14}{each.longest_wait:>14,}{each.variance:>10.2f}  {gradient}"
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


def _gradient_variance(trainer: Trainer, found: Iterable[Any]) -> float:
    """The variance of the gradient over batches, added up over the weights."""

    @tf.function(autograph=False)
    def gradient(batch: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            outputs = trainer.model(batch["image"], training=True)
            loss = tf.reduce_mean(trainer.task.loss(outputs, batch))
        gradients = tape.gradient(loss, trainer.model.trainable_variables)
        return tf.concat([tf.reshape(each, [-1]) for each in gradients], axis=0)

    gradients = np.stack([gradient(batch).numpy() for batch in found])
    return float(gradients.var(axis=0, ddof=1).sum())
