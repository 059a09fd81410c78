"""Evaluates a model: loss, metrics and confusion over a split, each record once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.augmentation.chain import views_as_examples
from pipeline.augmentation.pixels import to_float32
from pipeline.config import InputConfig
from pipeline.dataset import EvaluationDataset, make_evaluation_dataset
from pipeline.distribution.image_sizes import step_by_size
from pipeline.records.bucket_table import sizes_of
from pipeline.records.info import DatasetInfo
from pipeline.tasks.base import Task
from pipeline.tasks.results import losses_of, metrics_of, predictions_of

_PADDING = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """The result of an evaluation.

    Attributes:
      averages: the loss and each metric, averaged over the records that count for it. A metric for
        which none counts is left out.
      by_layout: the same averages of each layout, float64 [layouts]; NaN for layouts without
        records.
      counted: number of records of each layout that count for the loss and each metric, float64
        [layouts].
      records: number of records of each layout, float64 [layouts].
      confusion: int64 [pairs, 3] of a label, the label predicted, and the number of such records;
        None if the task predicts no label.
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
        self._config = config.with_features("layout_id", "weight")
        self._sizes = sizes_of(info, config) if config.buckets is not None else ()
        self._global_batch_size = global_batch_size
        self._labels = len(info.vocabulary(config.label))
        self._datasets: dict[str, EvaluationDataset] = {}

    def trace(self, split: str) -> None:
        """Makes the graph of a step of `evaluate`, and runs nothing; every worker must call it.

        Raises:
          TaskError: a method of the task returns something of another shape than it should.
        """
        self._step.get_concrete_function(iter(self._dataset(split).dataset))

    def evaluate(self, split: str) -> Evaluation:
        """Computes loss and metrics over a split; every worker must call it."""
        dataset, steps = self._dataset(split)
        batches = iter(dataset)
        # Sums over many steps are made on the host in float64: float32 would round them.
        sums: dict[str, npt.NDArray[np.float64]] = {}
        pairs = []
        for _ in range(steps):
            step_sums, step_pairs = self._step(batches)
            for name, values in step_sums.items():
                sums[name] = sums.get(name, 0) + values.numpy().astype(np.float64)
            if step_pairs is not None:
                pairs.append(step_pairs.numpy())
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN, for layouts without records
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
            confusion=self._confusion(np.concatenate(pairs)) if pairs else None,
        )

    def _dataset(self, split: str) -> EvaluationDataset:
        """Makes the dataset of a split, once: its index, maybe a remote one, is read for that."""
        if split not in self._datasets:
            self._datasets[split] = make_evaluation_dataset(
                self._strategy,
                self._info.data_dir,
                version=self._info.version,
                split=split,
                global_batch_size=self._global_batch_size,
                config=self._config,
            )
        return self._datasets[split]

    def _confusion(self, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Counts pairs coded as label · labels + prediction, to int64 [pairs, 3]."""
        # Of 5 labels, 2 taken for 4 is 14, and 14 // 5, 14 % 5 are 2 and 4 again.
        codes, records = np.unique(pairs[pairs != _PADDING], return_counts=True)
        return np.stack([codes // self._labels, codes % self._labels, records], axis=1)

    @tf.function(autograph=False)
    def _step(self, batches: Any) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
        return step_by_size(self._strategy, next(batches), self._sizes, self._all_replicas_step)

    def _all_replicas_step(
        self, batch: dict[str, Any]
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
        sums, pairs = self._strategy.run(self._replica_step, (batch,))
        # Sums of layouts are added over the replicas. Pairs are collected, one number per record: a
        # matrix of 20,000 labels would have 400 million cells.
        reduced = {
            name: self._strategy.reduce("SUM", values, axis=None) for name, values in sums.items()
        }
        return reduced, None if pairs is None else self._strategy.gather(pairs, axis=0)

    def _replica_step(
        self, batch: dict[str, tf.Tensor]
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
        """Evaluates the batch of a replica.

        Returns:
          For the loss and each metric, the sums of values and of weights over each layout, float32
          [2, layouts]. And for each record its label and prediction, coded in one number as
          label · labels + prediction, so that pairs can be counted as numbers: int64 [n], -1 for
          padding; None if no label is predicted. Of several views, the first is counted.
        """
        image = views_as_examples(to_float32(batch["image"]))
        outputs = self._model(image, training=False)
        losses = losses_of(self._task, outputs, batch)
        values = {"loss": (losses, tf.ones_like(losses)), **metrics_of(self._task, outputs, batch)}
        sums = {name: self._by_layout(*pair, batch) for name, pair in values.items()}
        predictions = predictions_of(self._task, outputs, image)
        if "label" not in predictions or "label" not in batch:
            return sums, None
        label = tf.cast(batch["label"], tf.int64)
        predicted = tf.cast(predictions["label"], tf.int64)
        predicted = tf.reshape(predicted, [-1, self._config.views])[:, 0]
        pairs = label * self._labels + predicted
        return sums, tf.where(batch["weight"] > 0, pairs, _PADDING)

    def _by_layout(
        self, values: tf.Tensor, counts: tf.Tensor, batch: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        """Sums values and weights over each layout, to float32 [2, layouts]."""
        weights = counts * batch["weight"]
        # A metric may be NaN where it does not count, and 0 · NaN would be NaN.
        weighted = tf.math.multiply_no_nan(values, weights)
        pairs = tf.stack([weighted, weights], axis=1)
        sums = tf.math.unsorted_segment_sum(pairs, batch["layout_id"], len(self._info.layouts))
        return tf.transpose(sums)

    def predict(self, image: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Computes the task's predictions from images; every worker must pass the same images.

        Args:
          image: uint8 or float32 [n, height, width, channels].
        """
        predictions = self._predict(tf.constant(image))
        return {
            name: self._strategy.experimental_local_results(values)[0].numpy()
            for name, values in predictions.items()
        }

    @tf.function(autograph=False)
    def _predict(self, image: tf.Tensor) -> Any:
        # On each replica alike: elsewhere, a model's variables may ask other workers for theirs.
        return self._strategy.run(self._replica_predictions, (image,))

    def _replica_predictions(self, image: tf.Tensor) -> dict[str, tf.Tensor]:
        return predictions_of(self._task, self._model(to_float32(image), training=False), image)
