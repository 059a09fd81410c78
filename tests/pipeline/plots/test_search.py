"""Pictures of a search."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from matplotlib.image import imread

from pipeline.plots.search import (
    Option,
    TrialPoint,
    draw_importance,
    draw_options,
    draw_progress,
)

RATE = Option(name="learning_rate", is_log=True)
DROPOUT = Option(name="model.dropout")
WIDTH = Option(name="model.width", choices=(8, 16))
SCHEDULE = Option(name="schedule", choices=("cosine", "constant", None))
POINTS = [
    TrialPoint(
        values={
            "learning_rate": 10.0**-number,
            "model.dropout": 0.1 * number,
            "model.width": 8 if number % 2 else 16,
            "schedule": ("cosine", "constant", None)[number % 3],
        },
        error=error,
        is_complete=number != 3,
    )
    for number, error in enumerate([0.5, 0.3, 0.4, 0.2, 0.35])
]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    drawn: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *arguments, **options) -> None:
        drawn.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return drawn


@pytest.mark.parametrize(
    ("options", "panels", "scale", "labels"),
    [
        ([RATE, WIDTH], ["learning_rate"], "log", ["model.width 8", "model.width 16", "pruned"]),
        ([WIDTH, DROPOUT, RATE], ["model.dropout", "learning_rate"], "linear", None),
        ([RATE, DROPOUT, RATE, DROPOUT], ["learning_rate", "model.dropout"] * 2, "log", ["pruned"]),
        ([SCHEDULE, WIDTH], ["schedule", "model.width"], "linear", ["pruned"]),
    ],
)
def test_options(tmp_path: Path, figures, options, panels, scale, labels):
    draw_options(POINTS, options, "error", tmp_path / "options.png")
    [figure] = figures
    assert [axes.get_xlabel() for axes in figure.axes] == panels
    first = figure.axes[0]
    assert first.get_xscale() == scale
    assert first.get_ylabel() == "error"
    if labels:
        assert [text.get_text() for text in first.get_legend().get_texts()] == labels
    shown = np.concatenate([each.get_offsets() for each in first.collections])
    assert sorted(shown[:, 1]) == sorted(point.error for point in POINTS)
    assert imread(tmp_path / "options.png").std() > 0


def test_progress_is_the_lowest_of_complete_trials(tmp_path: Path, figures):
    draw_progress(POINTS, "error", tmp_path / "progress.png")
    [axes] = figures[0].axes
    [best] = axes.lines
    assert list(best.get_xdata()) == [1, 2, 3, 4, 5]
    assert list(best.get_ydata()) == [0.5, 0.3, 0.3, 0.3, 0.3]  # 0.2 was pruned


def test_progress_before_any_trial_is_complete(tmp_path: Path, figures):
    draw_progress(POINTS[3:4], "error", tmp_path / "progress.png")
    [best] = figures[0].axes[0].lines
    assert list(best.get_ydata()) == []


def test_errors_that_lie_far_apart_have_a_logarithmic_axis(tmp_path: Path, figures):
    far = [TrialPoint(values=POINTS[0].values, error=9.0, is_complete=True), *POINTS]
    draw_progress(far, "error", tmp_path / "progress.png")
    draw_progress(POINTS, "error", tmp_path / "progress.png")
    assert [figure.axes[0].get_yscale() for figure in figures] == ["log", "linear"]


def test_importance_is_drawn_from_the_top(tmp_path: Path, figures):
    draw_importance({"learning_rate": 0.75, "model.width": 0.25}, tmp_path / "importance.png")
    [axes] = figures[0].axes
    assert [bar.get_width() for bar in axes.patches] == [0.25, 0.75]
