"""Means over the rare and the common half of the layouts, and the table of all."""

import csv
import math

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from pipeline.evaluator import Evaluation
from pipeline.layout_table import LayoutTable


def table(training: list[int], records: list[int], right: list[float]) -> LayoutTable:
    accuracy = np.array([r if n else math.nan for r, n in zip(right, records, strict=True)])
    return LayoutTable(
        layouts=[f"layout {number}, $" for number in range(len(training))],
        training_records=np.array(training),
        evaluation=Evaluation(
            averages={"accuracy": 0.5},
            by_layout={"accuracy": accuracy},
            records=np.array(records, float),
            confusion=None,
        ),
    )


@pytest.mark.parametrize(
    ("training", "records", "right", "rare", "expected"),
    [
        pytest.param(
            [9, 1, 5, 2], [90, 2, 1, 4], [0.9, 0.5, 0.7, 0.1], [1, 3], (0.55, 0.3, 0.8), id="even"
        ),
        pytest.param(
            [9, 1, 5], [1, 1, 1], [0.9, 0.3, 0.6], [1], (0.6, 0.3, 0.75), id="the middle is common"
        ),
        pytest.param(
            [3, 3, 3, 3], [1, 1, 1, 1], [1, 0, 0, 1], [0, 1], (0.5, 0.5, 0.5), id="equally many"
        ),
        pytest.param(
            [9, 0, 5, 0], [1, 0, 1, 1], [1, 1, 0, 0.2], [1, 3], (0.4, 0.2, 0.5), id="one not seen"
        ),
        pytest.param([9, 1], [5, 0], [0.4, 1], [1], (0.4, None, 0.4), id="no rare one seen"),
        pytest.param([9], [5], [0.4], [], (0.4, None, 0.4), id="a single one"),
    ],
)
def test_halves(
    training: list[int],
    records: list[int],
    right: list[float],
    rare: list[int],
    expected: tuple[float | None, ...],
):
    made = table(training, records, right)
    assert np.flatnonzero(made.is_rare).tolist() == rare
    parts = zip(("macro", "rare_half", "common_half"), expected, strict=True)
    values = {f"accuracy/{part}": value for part, value in parts if value is not None}
    assert made.summary() == pytest.approx(values)


def test_csv_has_a_line_for_each_layout_rarest_first():
    text = table([9, 1, 5], [4, 0, 3], [0.75, 1, 1 / 3]).to_csv()
    assert list(csv.DictReader(text.splitlines())) == [
        dict(zip(text.splitlines()[0].split(","), each, strict=True))
        for each in (
            ["layout 1, $", "rare", "1", "0", ""],
            ["layout 2, $", "common", "5", "3", "0.333333"],
            ["layout 0, $", "common", "9", "4", "0.75"],
        )
    ]
