"""Sums of gradients, here on a device of this process."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline.training.gradient_sums import GradientSums


@pytest.fixture
def sums() -> GradientSums:
    """Sums for variables of 2 and of 1 × 3 elements."""
    variables = [keras.Variable(np.zeros(2, "float32")), keras.Variable(np.zeros((1, 3)))]
    return GradientSums(variables, figures=1)


def add(sums: GradientSums, step: int, first: float, second: float | None, figure: float) -> None:
    @tf.function
    def work() -> None:
        gradients = [tf.fill([2], first), None if second is None else tf.fill([1, 3], second)]
        sums.add(tf.constant(step, tf.int64), gradients, tf.constant([figure]))

    work()


def take(sums: GradientSums, times: int = 1) -> tuple[list[float], float, float, int]:
    mean = tf.function(lambda: sums.take(times=times))()
    first, second = (gradient.numpy() for gradient in mean.gradients)
    assert second.shape == (1, 3)
    return first.tolist(), float(second[0, 2]), float(mean.figures[0]), int(mean.count)


def test_the_mean_of_a_step(sums: GradientSums):
    assert int(sums.count()) == 0
    add(sums, 0, 1.0, 4.0, 10.0)
    add(sums, 0, 2.0, 0.0, 20.0)
    assert int(sums.count()) == 2
    assert take(sums) == ([1.5, 1.5], 2.0, 15.0, 2)
    assert int(sums.count()) == 0


def test_gradients_of_a_step_that_is_over_are_dropped(sums: GradientSums):
    add(sums, 0, 1.0, 1.0, 1.0)
    take(sums)
    add(sums, 0, 1.0, 1.0, 1.0)
    assert int(sums.count()) == 0
    add(sums, 1, 3.0, 5.0, 7.0)
    assert take(sums) == ([3.0, 3.0], 5.0, 7.0, 1)


def test_a_mean_may_be_multiplied(sums: GradientSums):
    add(sums, 0, 1.0, 2.0, 3.0)
    add(sums, 0, 3.0, 2.0, 1.0)
    assert take(sums, times=3) == ([6.0, 6.0], 6.0, 6.0, 2)


def test_a_variable_without_a_gradient_has_none(sums: GradientSums):
    """And not zeros, by which an optimizer would decay its weights."""
    add(sums, 0, 1.0, None, 3.0)
    first, second = tf.function(sums.take)().gradients
    assert (first.numpy().tolist(), second) == ([1.0, 1.0], None)


def test_two_of_them_have_nothing_in_common(sums: GradientSums):
    other = GradientSums([keras.Variable(np.zeros(2, "float32"))], figures=1)
    add(sums, 0, 1.0, 1.0, 1.0)
    assert (int(sums.count()), int(other.count())) == (1, 0)
