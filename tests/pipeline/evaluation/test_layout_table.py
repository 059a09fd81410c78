"""Means over the rare and the common half of the layouts, and the table of all."""

import csv
import math

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from pipeline.evaluation.evaluator import Evaluation
from pipeline.evaluation.layout_table import LayoutTable


def table(training: list[int], records: list[int], right: list[float]) -> LayoutTable:
    accuracy = np.array([r if n else math.nan for r, n in zip(right, records, strict=True)])
    return LayoutTable(
        layouts=[f"layout {number}, $" for number in range(len(training))],
        training_records=np.array(training),
        evaluation=Evaluation(
            averages={"accuracy": 0.5},
            by_layout={"accuracy": accuracy},
            counted={"accuracy": np.array(records, float)},
            records=np.array(records, float),
            confusion=None,
        ),
    )


# Of each half: its mean, layouts and records.
Half = tuple[float, int, int]


@pytest.mark.parametrize(
    ("training", "records", "right", "rare", "macro", "rare_half", "common_half"),
    [
        pytest.param(
            [9, 1, 5, 2],
            [90, 2, 1, 4],
            [0.9, 0.5, 0.7, 0.1],
            [1, 3],
            0.55,
            (0.3, 2, 6),
            (0.8, 2, 91),
            id="even",
        ),
        pytest.param(
            [9, 1, 5],
            [1, 1, 1],
            [0.9, 0.3, 0.6],
            [1],
            0.6,
            (0.3, 1, 1),
            (0.75, 2, 2),
            id="the middle is common",
        ),
        pytest.param(
            [1, 9, 1, 2, 1],
            [1, 1, 2, 1, 1],
            [1, 1, 0, 0, 0.5],
            [0, 2, 4],
            0.5,
            (0.5, 3, 4),
            (0.5, 2, 2),
            id="equally many stay together",
        ),
        pytest.param(
            [3, 3, 3, 3], [1, 1, 1, 1], [1, 0, 0, 1], [], 0.5, None, None, id="all equally many"
        ),
        pytest.param(
            [9, 0, 5, 0],
            [1, 0, 1, 1],
            [1, 1, 0, 0.2],
            [1, 3],
            0.4,
            (0.2, 1, 1),
            (0.5, 2, 2),
            id="one not evaluated",
        ),
        # Rare in training, but what is evaluated is divided.
        pytest.param(
            [1, 1, 1, 5, 9, 2],
            [0, 0, 0, 1, 3, 2],
            [1, 1, 1, 0.25, 0.5, 0.75],
            [0, 1, 2, 5],
            0.5,
            (0.75, 1, 2),
            (0.375, 2, 4),
            id="most rare ones not evaluated",
        ),
        pytest.param([9, 1], [5, 0], [0.4, 1], [], 0.4, None, None, id="no rare one evaluated"),
        pytest.param([9], [5], [0.4], [], 0.4, None, None, id="a single one"),
    ],
)
def test_halves(
    training: list[int],
    records: list[int],
    right: list[float],
    rare: list[int],
    macro: float,
    rare_half: Half | None,
    common_half: Half | None,
):
    made = table(training, records, right)
    assert np.flatnonzero(made.halves["rare"]).tolist() == rare
    expected = {"accuracy/macro": macro}
    for name, half in (("rare_half", rare_half), ("common_half", common_half)):
        if half is not None:
            parts = (f"accuracy/{name}{unit}" for unit in ("", "_layouts", "_records"))
            expected |= dict(zip(parts, half, strict=True))
    assert made.summary() == pytest.approx(expected)


def test_names_decide_nothing():
    """Layouts in another order: the same figures."""
    order = np.random.default_rng(0).permutation(40)
    training, records = np.arange(40) // 7, np.arange(40) % 3
    right = np.linspace(0, 1, 40)
    summaries = [
        table(training[o].tolist(), records[o].tolist(), right[o].tolist()).summary()
        for o in (np.arange(40), order)
    ]
    assert summaries[0] == pytest.approx(summaries[1])
    assert summaries[0]["accuracy/rare_half_layouts"] > 5


def test_csv_has_a_line_for_each_layout_rare_ones_first():
    text = table([9, 1, 5], [4, 0, 3], [0.75, 1, 1 / 3]).to_csv()
    assert list(csv.DictReader(text.splitlines())) == [
        dict(zip(text.splitlines()[0].split(","), each, strict=True))
        for each in (
            ["layout 1, $", "rare", "1", "0", ""],
            ["layout 2, $", "rare", "5", "3", "0.333333"],
            ["layout 0, $", "common", "9", "4", "0.75"],
        )
    ]
