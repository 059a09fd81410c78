"""Loss, metrics and mistakes over each record of a split, once."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.dataset import make_evaluation_dataset
from pipeline.records.info import DatasetInfo
from pipeline.tasks.base import MetricValue, Task

_PADDING = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """Averages over each record of a split, once.

    Attributes:
      averages: of the loss and each metric, over the records that count for it; a metric for which
        none counts is left out.
      by_layout: the same for each layout, NaN for those without records; [layouts].
      counted: records of each layout that count for the loss and each metric, [layouts].
      records: of each layout, [layouts].
      confusion: what was taken for what, int64 [pairs, 3] of a label, the one predicted, and how
        many records; None where the task predicts no label.
    """

    averages: Mapping[str, float]
    by_layout: Mapping[str, npt.NDArray[np.float64]]
    counted: Mapping[str, npt.NDArray[np.float64]]
    records: npt.NDArray[np.float64]
    confusion: npt.NDArray[np.int64] | None


class Evaluator:
    """Evaluates a model under a strategy whose replicas are in sync."""

    def __init__(
        self,
        task: Task,
        strategy: tf.distribute.Strategy,
        info: DatasetInfo,
        *,
        model: Any,
        config: InputConfig,
        global_batch_size: int,
    ) -> None:
        """Takes a model whose variables belong to the strategy."""
        self._task, self._strategy, self._info, self._model = task, strategy, info, model
        features = dict.fromkeys((*(config.features or ()), "layout_id", "weight"))
        self._config = dataclasses.replace(config, features=tuple(features))
        self._global_batch_size = global_batch_size
        self._labels = len(info.vocabulary(config.label))

    def evaluate(self, split: str) -> Evaluation:
        """Loss and metrics over a split; every worker must ask."""
        dataset, steps = make_evaluation_dataset(
            self._strategy,
            self._info.data_dir,
            split=split,
            global_batch_size=self._global_batch_size,
            config=self._config,
        )
        batches = iter(dataset)
        # Sums over many steps are the host's: float32 would round them.
        sums: dict[str, npt.NDArray[np.float64]] = {}
        mistaken = []
        for _ in range(steps):
            found, pairs = self._step(batches)
            for name, each in found.items():
                sums[name] = sums.get(name, 0) + each.numpy().astype(np.float64)
            if pairs is not None:
                mistaken.append(pairs.numpy())
        with np.errstate(invalid="ignore"):
            by_layout = {name: total / count for name, (total, count) in sums.items()}
        return Evaluation(
            averages={
                name: float(total.sum() / count.sum())
                for name, (total, count) in sums.items()
                if count.any()
            },
            by_layout=by_layout,
            counted={name: count for name, (_, count) in sums.items()},
            records=sums["loss"][1],
            confusion=self._confusion(np.concatenate(mistaken)) if mistaken else None,
        )

    def _confusion(self, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        found, records = np.unique(pairs[pairs != _PADDING], return_counts=True)
        return np.stack([found // self._labels, found % self._labels, records], axis=1)

    @tf.function
    def _step(self, batches: Any) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
        sums, pairs = self._strategy.run(self._replica_step, (next(batches),))
        reduced = {
            name: self._strategy.reduce("SUM", each, axis=None) for name, each in sums.items()
        }
        return reduced, None if pairs is None else self._strategy.gather(pairs, axis=0)

    def _replica_step(
        self, batch: dict[str, tf.Tensor]
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
        """Sums over each layout, and a number for label and prediction of each record.

        Returns:
          Of the loss and each metric, float32 [2, layouts]: the sums of values and of weights.
          And int64 [n], or None where no label is predicted.
        """
        outputs = self._model(images(batch), training=False)
        values = {"loss": self._task.loss(outputs, batch), **self._task.metrics(outputs, batch)}
        sums = {name: self._by_layout(value, batch) for name, value in values.items()}
        predictions = self._task.predictions(outputs)
        if "label" not in predictions or "label" not in batch:
            return sums, None
        label, predicted = (tf.cast(each["label"], tf.int64) for each in (batch, predictions))
        pairs = label * self._labels + predicted
        return sums, tf.where(batch["weight"] > 0, pairs, _PADDING)

    def _by_layout(self, value: MetricValue, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Sums of values and of weights over each layout, float32 [2, layouts]."""
        values, counts = value if isinstance(value, tuple) else (value, tf.ones_like(value))
        weights = tf.cast(counts, tf.float32) * batch["weight"]
        weighted = tf.math.multiply_no_nan(tf.cast(values, tf.float32), weights)
        pairs = tf.stack([weighted, weights], axis=1)
        sums = tf.math.unsorted_segment_sum(pairs, batch["layout_id"], len(self._info.layouts))
        return tf.transpose(sums)

    def predict(self, image: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """What the task predicts from images; every worker must ask, for the same ones."""
        found = self._predict(tf.constant(image))
        return {
            name: self._strategy.experimental_local_results(each)[0].numpy()
            for name, each in found.items()
        }

    @tf.function
    def _predict(self, image: tf.Tensor) -> Any:
        # On each replica alike: elsewhere, a model's variables may ask other workers for theirs.
        return self._strategy.run(self._replica_predictions, (image,))

    def _replica_predictions(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._task.predictions(self._model(images({"image": image}), training=False))


def images(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Images in 0…1, whether or not they were normalized on the host."""
    image = batch["image"]
    return tf.cast(image, tf.float32) * (1 / 255) if image.dtype == tf.uint8 else image
