"""Random numbers of examples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation import stateless_random

MANY = tf.range(20_000, dtype=tf.int64)  # the worst seeds: neighbors


def test_neighboring_seeds_and_numbers_draw_independently():
    columns = np.stack([stateless_random.uniform(MANY, number).numpy() for number in range(4)])
    assert np.abs(columns.mean(axis=1) - 0.5).max() < 0.01
    assert np.abs(columns.var(axis=1) - 1 / 12).max() < 0.005
    for lag in (0, 1, 2):
        correlation = np.corrcoef(columns[:, lag:], columns[:, : columns.shape[1] - lag or None])
        assert np.abs(correlation[:4, 4:][~np.eye(4, dtype=bool) | (lag > 0)]).max() < 0.03


def test_derived_seeds_are_32_bit_and_hardly_ever_equal():
    derived = tf.concat(
        [stateless_random.fold_in(MANY, place) for place in range(5)], axis=0
    ).numpy()
    assert derived.dtype == np.int64
    assert derived.min() >= 0
    assert derived.max() < 2**32
    # Of 100,000 numbers below 2**32 one pair or two are equal by chance.
    assert len(np.unique(derived)) > len(derived) - 8


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    low=st.floats(0.01, 10),
    width=st.floats(0, 10),
)
def test_draws_stay_in_their_interval(seed: int, low: float, width: float):
    for draw in (stateless_random.uniform, stateless_random.log_uniform):
        value = draw(tf.constant([seed], tf.int64), 3, (low, low + width)).numpy()[0]
        assert low * (1 - 1e-12) <= value <= (low + width) * (1 + 1e-12)


def test_log_uniform_is_as_often_below_the_geometric_mean_as_above():
    below = stateless_random.log_uniform(MANY, 0, (0.25, 4.0)).numpy() < 1
    assert abs(below.mean() - 0.5) < 0.02


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_applies_as_often_as_asked(probability: float):
    assert abs(stateless_random.applies(MANY, probability).numpy().mean() - probability) < 0.01
    if probability in (0.0, 1.0):
        assert len(np.unique(stateless_random.applies(MANY, probability).numpy())) == 1
