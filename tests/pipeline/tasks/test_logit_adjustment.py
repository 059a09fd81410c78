"""The layer that adds priors to logits while training."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline.tasks.logit_adjustment import LogitAdjustment

LOGITS = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0]], np.float32)


def test_tau_1_is_the_balanced_softmax():
    """Ren et al.: -log(n_y exp(z_y) / sum of n_j exp(z_j))."""
    counts, labels = np.array([90, 9, 1]), np.array([2, 0])
    adjusted = LogitAdjustment(counts.tolist())(LOGITS, training=True)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, adjusted)
    weighted = counts * np.exp(LOGITS)
    expected = -np.log(weighted[[0, 1], labels] / weighted.sum(axis=1))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_a_value_without_records_counts_as_one_of_a_single_record():
    made, of_one = (LogitAdjustment(counts, tau=2.0) for counts in ([5, 0, 3], [5, 1, 3]))
    adjusted = made(LOGITS, training=True)
    assert np.isfinite(adjusted).all()
    np.testing.assert_array_equal(adjusted, of_one(LOGITS, training=True))


def test_keras_makes_the_layer_anew():
    layer = LogitAdjustment([3, 1, 1], tau=0.5)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    np.testing.assert_array_equal(again(LOGITS, training=True), layer(LOGITS, training=True))
    np.testing.assert_array_equal(again(LOGITS), LOGITS)
