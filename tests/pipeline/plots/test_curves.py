"""Plots of the log."""

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from PIL import Image

from pipeline.plots.curves import curves_of, draw_curves


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"step": 1, "loss": 2.0}],
        [{"step": step, "loss": 2.0 / step} for step in range(1, 100)]
        + [{"step": 99, "validation/loss": 1.0, "validation/iou_$": 0.5}],
        [
            {
                "step": 9,
                "validation/iou_$": 0.5,
                "validation/iou_$/rare_half": 0.25,
                "validation/iou_$/rare_half_layouts": 2,
                "validation/iou_$/rare_half_records": 3,
            }
        ],
    ],
)
def test_curves_are_drawn(lines: list[dict[str, float]], tmp_path: Path):
    draw_curves(lines, "$run_", tmp_path / "plot.png")
    metrics = any("validation/iou_$" in line for line in lines)
    with Image.open(tmp_path / "plot.png") as image:
        assert image.size == (1080, 792 if metrics else 456)


def test_a_half_is_named_with_its_layouts_and_records():
    half = "validation/accuracy/rare_half"
    lines = [
        {"step": 5, "validation/accuracy": 0.5},
        {"step": 9, half: 0.25, f"{half}_layouts": 1200, f"{half}_records": 3456},
    ]
    (_, whole, _), (curve, label, _) = curves_of("accuracy", lines)
    assert (whole, curve) == ("validation", half)
    assert label == "validation, rare half: 1,200 layouts, 3,456 records"
    assert len(list(curves_of("loss", lines))) == 1
