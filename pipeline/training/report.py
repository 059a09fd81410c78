"""Files that evaluations leave in the run folder."""

from typing import Any

import numpy as np

from pipeline.evaluation.evaluator import Evaluation
from pipeline.evaluation.layout_table import LayoutTable
from pipeline.input.input_pipeline import InputPipeline
from pipeline.plots.confusion import draw_confusion
from pipeline.plots.samples import draw_samples
from pipeline.training.run_directory import RunFolder
from pipeline.training.trainer import Trainer

_SAMPLES = 12


class Report:
    """Writes figures, the table of layouts and pictures of evaluations; the newest ones stay."""

    def __init__(self, trainer: Trainer, folder: RunFolder, split: str) -> None:
        """Reads the first receipts of the split, which are drawn at every evaluation."""
        self._trainer, self._folder = trainer, folder
        self._names = trainer.info.vocabulary(trainer.config.label)
        counts = trainer.info.split("train").category_counts["layout"]
        self._training_records = np.array(counts, np.int64)
        # Each worker reads them by itself, and all the same.
        pipeline = InputPipeline.load(
            trainer.info, split, _SAMPLES, trainer.config, evaluation=True
        )
        self._samples = pipeline.first_records(_SAMPLES)

    def write(self, step: int, evaluation: Evaluation) -> dict[str, float]:
        """Writes an evaluation, and returns its figures by name; every worker must call it."""
        predictions = self._trainer.predict(self._samples["image"])
        table = LayoutTable(
            layouts=self._trainer.info.layouts,
            training_records=self._training_records,
            evaluation=evaluation,
        )
        figures = {**evaluation.averages, **table.summary()}
        if self._folder.is_chief:
            self._folder.write_layouts(table.to_csv())
            self._draw(step, evaluation, predictions)
        self._folder.log(step, {f"validation/{name}": value for name, value in figures.items()})
        return figures

    def _draw(self, step: int, evaluation: Evaluation, predictions: dict[str, Any]) -> None:
        self._folder.picture(step, "samples", draw_samples(self._samples, predictions, self._names))
        if evaluation.confusion is not None:
            label = self._trainer.config.label
            picture = draw_confusion(evaluation.confusion, self._names, label)
            self._folder.picture(step, "confusion", picture)
