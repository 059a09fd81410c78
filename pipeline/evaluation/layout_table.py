"""Evaluations layout by layout, with rare and common layouts apart."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.evaluation.evaluator import Evaluation


@dataclass(frozen=True, kw_only=True, eq=False)
class LayoutTable:
    """An evaluation, layout by layout.

    Attributes:
      layouts: names of the layouts.
      training_records: number of records of each layout in the training split as it was built,
        int64 [layouts].
      evaluation: the evaluation.
    """

    layouts: Sequence[str]
    training_records: npt.NDArray[np.int64]
    evaluation: Evaluation

    @property
    def halves(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Layouts of the "rare" and of the "common" half, bool [layouts].

        Layouts are rare if they have at most a certain number of training records: the number that
        divides the evaluated layouts most evenly, or the lower one of two such numbers. Of 5
        evaluated layouts with 1, 1, 1, 2 and 9 training records, those with 1 are rare, as 3 to 2
        is nearer to half than 4 to 1. Layouts with the same number of records are never separated:
        if all have the same number there are no halves, and both are empty.
        """
        counts = self.training_records[self.evaluation.records > 0]
        limits, layouts = np.unique(counts, return_counts=True)
        if len(limits) < 2:
            none = np.zeros(len(self.layouts), np.bool_)
            return {"rare": none, "common": none}
        # In the example, 3 layouts have up to 1 record and 4 up to 2: 0.5 and 1.5 off half of 5.
        off_half = np.abs(np.cumsum(layouts)[:-1] - len(counts) / 2)
        rare = self.training_records <= limits[np.argmin(off_half)]
        return {"rare": rare, "common": ~rare}

    def summary(self) -> dict[str, float]:
        """Averages over layouts, each with the same weight, whatever its number of records.

        Returns:
          For the loss and each metric, such as "accuracy": the average "accuracy/macro" over all
          layouts, "accuracy/rare_half" and "accuracy/common_half", and the numbers of layouts and
          records of these halves, "accuracy/rare_half_layouts", "accuracy/rare_half_records" and so
          on. Layouts without a record that counts are left out, and so are empty halves.
        """
        halves = self.halves
        figures: dict[str, float] = {}
        for name, values in self.evaluation.by_layout.items():
            records = self.evaluation.counted[name]
            if (evaluated := records > 0).any():
                figures[f"{name}/macro"] = float(values[evaluated].mean())
            for half, layouts in halves.items():
                if (chosen := evaluated & layouts).any():
                    figures[f"{name}/{half}_half"] = float(values[chosen].mean())
                    figures[f"{name}/{half}_half_layouts"] = int(chosen.sum())
                    figures[f"{name}/{half}_half_records"] = int(records[chosen].sum())
        return figures

    def to_csv(self) -> str:
        """Writes a line for each layout, rare ones first; figures without records are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = list(self.evaluation.by_layout)
        writer.writerow(["layout", "half", "training_records", "evaluated_records", *names])
        writer.writerows(self._rows(names))
        return text.getvalue()

    def _rows(self, names: Sequence[str]) -> Iterator[list[Any]]:
        halves = self.halves
        evaluation = self.evaluation
        for layout in np.argsort(self.training_records, kind="stable"):
            half = [name for name, layouts in halves.items() if layouts[layout]]
            yield [
                self.layouts[layout],
                *(half or [""]),
                self.training_records[layout],
                int(evaluation.records[layout]),
                *(
                    f"{evaluation.by_layout[name][layout]:.6g}"
                    if evaluation.counted[name][layout]
                    else ""
                    for name in names
                ),
            ]
