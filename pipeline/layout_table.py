"""How well each layout does, and the rare ones apart from the common ones."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.evaluator import Evaluation


@dataclass(frozen=True, kw_only=True, eq=False)
class LayoutTable:
    """An evaluation, layout by layout.

    Attributes:
      layouts: their names.
      training_records: how many of each the training split was built with, [layouts].
      evaluation: what was found.
    """

    layouts: Sequence[str]
    training_records: npt.NDArray[np.int64]
    evaluation: Evaluation

    @property
    def is_rare(self) -> npt.NDArray[np.bool_]:
        """Whether a layout is of the rare half, bool [layouts].

        That is the half of all layouts with the fewest training records, the smaller one of an odd
        number; of layouts with equally many, those whose names come first.
        """
        rare = np.zeros(len(self.layouts), np.bool_)
        rare[self._rarest_first()[: len(self.layouts) // 2]] = True
        return rare

    def summary(self) -> dict[str, float]:
        """Means over layouts, each with the same weight, however many records it has.

        Of the loss and each metric, such as "accuracy", these are "accuracy/macro" over all
        layouts, "accuracy/rare_half" and "accuracy/common_half". Layouts without a record in the
        evaluation don't count; a half of none is left out.
        """
        seen = self.evaluation.records > 0
        parts = {
            "macro": seen,
            "rare_half": seen & self.is_rare,
            "common_half": seen & ~self.is_rare,
        }
        return {
            f"{name}/{part}": float(values[chosen].mean())
            for name, values in self.evaluation.by_layout.items()
            for part, chosen in parts.items()
            if chosen.any()
        }

    def to_csv(self) -> str:
        """A line for each layout, the rarest first; what was not evaluated is left empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = list(self.evaluation.by_layout)
        writer.writerow(["layout", "half", "training_records", "evaluated_records", *names])
        writer.writerows(self._rows(names))
        return text.getvalue()

    def _rows(self, names: Sequence[str]) -> Iterator[list[Any]]:
        rare = self.is_rare
        for layout in self._rarest_first():
            records = int(self.evaluation.records[layout])
            values = [self.evaluation.by_layout[name][layout] for name in names]
            yield [
                self.layouts[layout],
                "rare" if rare[layout] else "common",
                self.training_records[layout],
                records,
                *(f"{value:.6g}" if records else "" for value in values),
            ]

    def _rarest_first(self) -> npt.NDArray[np.int64]:
        return np.argsort(self.training_records, kind="stable")
