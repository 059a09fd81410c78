"""Needs of TPUs, as far as a CPU can tell: XLA compiles the steps, nothing is a string."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.chain import Op, augment
from pipeline.augmentation.presets import STRONG
from pipeline.records.info import load_info
from pipeline.tasks.base import Task
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.tasks.layout_embedding import LayoutEmbedding
from pipeline.tasks.text_detector import TextDetector
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer

pytestmark = pytest.mark.slow

# Of the others, XLA lacks an op: geometric ones resample images, JpegArtifacts encodes them.
COMPILED = [
    op
    for op in STRONG
    if type(op).__module__ != "pipeline.augmentation.geometric" and "Jpeg" not in repr(op)
]


@pytest.mark.parametrize(
    "task",
    [
        LayoutClassifier(size=32, width=8, units=8),
        LayoutClassifier(size=32, width=8, units=8, depth="deep", dropout=0.1),
        TextDetector(height=32, width=32, filters=8, max_boxes=4),
        LayoutEmbedding(size=32, filters=8, units=8),
    ],
    ids=["shallow classifier", "deep classifier", "text detector", "embedding"],
)
def test_steps_compile(directory: Path, task: Task):
    options = TrainOptions(
        steps=9, global_batch_size=4, accumulate=2, clip_norm=1.0, mixed_precision=True
    )
    trainer = Trainer(
        task,
        tf.distribute.get_strategy(),
        load_info(directory),
        options,
        lambda config: dataclasses.replace(config, dtype="uint8"),
    )
    batch = next(trainer.batches())
    assert all(each.shape.is_fully_defined() for each in batch.values())
    assert tf.string not in {each.dtype for each in batch.values()}
    loss = tf.function(trainer._train_replica, jit_compile=True)(batch)
    assert np.isfinite(loss)
    evaluated = {**batch, "layout_id": tf.zeros([4], tf.int64), "weight": tf.ones([4])}
    step = tf.function(trainer._evaluator._replica_step, jit_compile=True)
    sums, _ = step(evaluated)
    _, counted = sums["loss"].numpy()
    assert counted[0] == 4


@pytest.mark.parametrize("op", COMPILED, ids=lambda op: type(op).__name__)
def test_augmentations_compile(op: Op):
    examples = {"image": tf.random.stateless_uniform([3, 16, 12, 1], [0, 0])}
    seeds = tf.range(3, dtype=tf.int64)
    compiled = tf.function(lambda *each: augment(each[0], (op,), each[1]), jit_compile=True)
    np.testing.assert_allclose(
        compiled(examples, seeds)["image"], augment(examples, (op,), seeds)["image"], atol=1e-5
    )
