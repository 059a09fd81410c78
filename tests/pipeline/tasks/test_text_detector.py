"""Text masks from boxes, and a net that learns them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.augmentation.geometric import Rotate
from pipeline.dataset import make_dataset
from pipeline.records.info import load_info
from pipeline.tasks.text_detector import TextDetector, text_mask
from pipeline.training.trainer import Trainer, TrainOptions
from tests.support.dataset_factory import BOX, HEIGHT, WIDTH, write_dataset
from tests.support.training import train

pytestmark = pytest.mark.slow

SMALL = TextDetector(height=64, width=48, filters=8, max_boxes=4, augment=False)


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        pytest.param([], [[0, 0, 0, 0]] * 2, id="no text"),
        pytest.param([(0, 0, 1, 1)], [[1, 1, 1, 1]] * 2, id="all"),
        pytest.param([(0, 0.25, 0.5, 0.75)], [[0, 1, 1, 0], [0, 0, 0, 0]], id="whole cells"),
        pytest.param(
            [(0.25, 0.125, 1, 0.5)], [[0.25, 0.5, 0, 0], [0.5, 1, 0, 0]], id="parts of cells"
        ),
        pytest.param(
            [(0, 0, 0.5, 0.25), (0.5, 0.75, 1, 1)], [[1, 0, 0, 0], [0, 0, 0, 1]], id="two lines"
        ),
        pytest.param([(0, 0, 1, 0.5), (0, 0.25, 1, 1)], [[1, 1, 1, 1]] * 2, id="overlap"),
        pytest.param([(-0.5, 0.5, 0.5, 1.5)], [[0, 0, 1, 1], [0, 0, 0, 0]], id="beyond the edge"),
    ],
)
def test_mask_is_what_boxes_cover(boxes: list[tuple], expected: list[list[float]]):
    padded = np.zeros((2, 3, 4), np.float32)
    padded[1, : len(boxes)] = np.reshape(boxes, (-1, 4))
    masks = text_mask(tf.constant(padded), 2, 4)
    np.testing.assert_allclose(masks[1], expected, atol=1e-6)
    np.testing.assert_array_equal(masks[0], 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 16)] * 4), max_size=6))
def test_mask_equals_painting_one_box_after_the_other(corners: list[tuple[int, ...]]):
    painted = np.zeros((16, 16), np.float32)
    boxes = np.zeros((1, 6, 4), np.float32)
    for place, (y0, y1, x0, x1) in enumerate(corners):
        top, bottom, left, right = min(y0, y1), max(y0, y1), min(x0, x1), max(x0, x1)
        painted[top:bottom, left:right] = 1
        boxes[0, place] = np.array([top, left, bottom, right]) / 16
    np.testing.assert_allclose(text_mask(tf.constant(boxes), 16, 16)[0], painted, atol=1e-5)


def batch_of(directory: Path, task: TextDetector, **changes: object) -> dict[str, tf.Tensor]:
    config = dataclasses.replace(task.inputs(load_info(directory)), **changes)
    return next(iter(make_dataset(directory, global_batch_size=4, config=config)))


def test_mask_lies_where_the_text_is(directory: Path):
    """The box of the drawn receipts is nearly black on white: the mask is the image's negative."""
    task = dataclasses.replace(SMALL, height=4 * HEIGHT + 16, width=4 * WIDTH)
    batch = batch_of(directory, task)
    assert batch["image"].shape == (4, 256, 160, 1)
    cells = tf.nn.avg_pool2d(batch["image"], 4, 4, "VALID")[..., 0].numpy()
    mask = text_mask(batch["boxes"], 64, 40).numpy()
    # Enlarging the image fourfold blurs its edges; a shift by half a cell would give 0.5.
    np.testing.assert_allclose(mask, 1 - cells, atol=0.35)
    assert np.abs(mask - 1 + cells).mean() < 0.02
    xmin, ymin, xmax, ymax = BOX
    assert mask.sum() == pytest.approx(4 * 60 * 40 * (xmax - xmin) * (ymax - ymin), rel=1e-4)


def test_augmented_boxes_move_the_mask(directory: Path):
    still = batch_of(directory, SMALL)
    moved = batch_of(directory, SMALL, augmentations=(Rotate(degrees=(180.0, 180.0)),))
    before, after = (text_mask(each["boxes"], 16, 12).numpy() for each in (still, moved))
    assert not np.allclose(before, after, atol=0.5)
    np.testing.assert_allclose(after, before[:, ::-1, ::-1], atol=1e-4)


def test_augments_by_default(directory: Path):
    info = load_info(directory)
    assert TextDetector().inputs(info).augmentations
    assert not TextDetector(augment=False).inputs(info).augmentations


def test_learns(directory: Path):
    _, losses, metrics = train(SMALL, directory, steps=40, learning_rate=5e-3)
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    assert metrics["iou"] > 0.6


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([[1, 1, 0, 0], [0, 0, 0, 0]], 1, id="right"),
        pytest.param([[1, 0, 0, 0], [0, 0, 0, 0]], 1 / 2, id="half"),
        pytest.param([[0, 1, 1, 0], [0, 0, 0, 0]], 1 / 3, id="shifted"),
        pytest.param([[0, 0, 0, 0], [1, 1, 1, 1]], 0, id="wrong"),
    ],
)
def test_iou_and_loss(found: list[list[int]], expected: float):
    logits = 40.0 * tf.constant(found, tf.float32)[None, ..., None] - 20
    batch = {"boxes": tf.constant([[[0, 0, 0.5, 0.5], [0, 0, 0, 0]]])}
    iou, weight = SMALL.metrics(logits, batch)["iou"]
    assert (float(iou[0]), float(weight[0])) == (pytest.approx(expected), 1)
    loss = float(SMALL.loss(logits, batch)[0])
    if expected == 1:
        assert loss == pytest.approx(0, abs=1e-5)
    else:
        assert loss > 0.2


@pytest.mark.parametrize("logit", [-20.0, 20.0])
def test_a_receipt_without_boxes_counts_for_nothing(logit: float):
    batch = {"boxes": tf.zeros([1, 3, 4])}
    logits = tf.fill([1, 2, 4, 1], logit)
    _, weight = SMALL.metrics(logits, batch)["iou"]
    assert float(weight[0]) == 0
    assert float(SMALL.loss(logits, batch)[0]) == 0


def test_a_mean_is_over_receipts_with_boxes(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts", without_boxes=("alpha", "omega"))
    trainer = Trainer(
        SMALL,
        tf.distribute.get_strategy(),
        load_info(directory),
        TrainOptions(steps=1, global_batch_size=4),
    )
    trainer.model.layers[-1].set_weights([np.zeros((1, 1, 16, 1)), np.ones(1)])  # text everywhere
    evaluation = trainer.evaluate("train")
    assert evaluation.counted["iou"].tolist() == [0, 9, 2, 0]
    # All boxes are alike, and cover cells of the mask by half or more where their area is.
    batch = batch_of(directory, dataclasses.replace(SMALL))
    masks = text_mask(batch["boxes"], 16, 12).numpy() >= 0.5
    expected = masks.mean(axis=(1, 2)).max()
    assert evaluation.averages["iou"] == pytest.approx(expected, rel=1e-6)
    assert np.isnan(evaluation.by_layout["iou"]).tolist() == [True, False, False, True]
    assert (evaluation.by_layout["loss"] > 0).tolist() == [False, True, True, False]


def test_a_dataset_without_boxes_is_refused(tmp_path: Path):
    directory = write_dataset(
        tmp_path / "receipts", counts={"alpha": 4}, shards=1, without_boxes=("alpha",)
    )
    sentence = "no record of .*receipts has boxes, from which TextDetector learns: build the"
    with pytest.raises(ValueError, match=sentence):
        SMALL.inputs(load_info(directory))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"height": 100}, "height must be a multiple of 16 pixels, got 100"),
        ({"width": 0}, "width must be a multiple of 16 pixels, got 0"),
        ({"filters": 12}, "filters must be a multiple of 8, got 12"),
        ({"max_boxes": 0}, "max_boxes must be at least 1, got 0"),
    ],
)
def test_errors(options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        TextDetector(**options)
