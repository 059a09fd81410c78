"""Settings of Keras at which training would fail, or would be something else."""

from collections.abc import Iterator

import pytest

pytest.importorskip("tensorflow")

import keras

from pipeline.training.keras_fit import EpochCheckpoints
from pipeline.training.keras_settings import check_keras, dtype_policy


@pytest.fixture
def channels_first() -> Iterator[None]:
    keras.config.set_image_data_format("channels_first")
    yield
    keras.config.set_image_data_format("channels_last")


def test_settings_that_fit():
    check_keras()


@pytest.mark.usefixtures("channels_first")
def test_channels_that_come_first():
    with pytest.raises(ValueError, match=r"^Keras' image_data_format is 'channels_first', and"):
        check_keras()


def test_another_backend(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"^Keras' backend is 'jax', .*: set KERAS_BACKEND="):
        check_keras()


def test_a_model_of_another_library(tmp_path):
    with pytest.raises(
        ValueError, match=r"^the model must be .*, got builtins.object: unset TF_USE"
    ):
        EpochCheckpoints(object(), tmp_path)


def test_a_policy_is_set_for_a_block():
    policy = keras.config.dtype_policy()
    with dtype_policy("mixed_bfloat16"):
        assert keras.layers.Dense(1).compute_dtype == "bfloat16"
    assert keras.config.dtype_policy() == policy
