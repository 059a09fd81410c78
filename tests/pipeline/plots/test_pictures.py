"""Pictures of evaluations: what is shown of many labels, and that nothing in a name breaks them."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("tensorflow")

from pathlib import Path

from PIL import Image

from pipeline.plots.curves import curves_of, draw_curves
from pipeline.plots.pictures import confusion_shown, draw_confusion, draw_samples

NAMES = [f"$shop_{number} {{" for number in range(40)]


@pytest.mark.parametrize(
    ("labels", "pairs", "shown", "counts"),
    [
        pytest.param(
            3, [(0, 0, 5), (1, 0, 2)], [0, 1, 2], [[5, 0, 0], [2, 0, 0], [0, 0, 0]], id="all"
        ),
        pytest.param(
            5,
            [(0, 0, 9), (1, 1, 9), (2, 3, 4), (4, 3, 1), (4, 4, 2)],
            [2, 3],
            [[0, 4, 0], [0, 0, 0], [0, 1, 20]],
            id="those in most mistakes, and the others",
        ),
    ],
)
def test_what_is_shown(labels: int, pairs: list, shown: list[int], counts: list[list[int]]):
    ids, matrix = confusion_shown(np.array(pairs), labels, most=3 if labels == 3 else 2)
    assert ids.tolist() == shown
    assert matrix.tolist() == counts
    assert matrix.sum() == sum(records for _, _, records in pairs)


@pytest.mark.parametrize("labels", [1, 2, 30, 40])
def test_confusion_is_drawn(labels: int):
    pairs = np.array([(number, 0, 1 + number) for number in range(labels)])
    picture = draw_confusion(pairs, NAMES[:labels], "$lay_out")
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    assert picture.min() < 60  # something dark is on it


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", [1, 5])
def test_samples_are_drawn(dtype: type, channels: int, count: int):
    batch = {
        "image": np.full((count, 8, 6, channels), 255 if dtype == np.uint8 else 1, dtype),
        "label": np.arange(count),
        "total": np.full(count, 12.5, np.float32),
        "boxes": np.tile(np.float32([[0.1, 0.1, 0.5, 0.5], [0, 0, 0, 0]]), (count, 1, 1)),
    }
    predictions = {
        "label": np.zeros(count, np.int64),
        "probability": np.full(count, 0.5, np.float32),
        "total": np.full(count, 12.0, np.float32),
        "company": np.full(count, "$ é".encode()),
        "unknown": np.zeros((count, 4, 4), np.float32),
    }
    plain = draw_samples(batch, predictions, NAMES)
    masked = draw_samples(batch, {**predictions, "mask": np.ones((count, 2, 3))}, NAMES)
    assert plain.shape == masked.shape
    pink = (np.abs(masked - [231.0, 129.0, 165.0]) < 15).all(axis=-1)
    assert pink.mean() > 0.2 / 4
    assert not (np.abs(plain - [231.0, 129.0, 165.0]) < 15).all(axis=-1).any()


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
