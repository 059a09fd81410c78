"""Settings of Keras that are not the program's: the environment, and keras.json."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from pipeline.keras_backend import check_backend


def check_keras() -> None:
    """Checks that Keras runs on TensorFlow, with images whose channels come last.

    Raises:
      ValueError: a setting differs; the message names it.
    """
    if keras.backend.backend() != "tensorflow":
        check_backend()
        raise ValueError(
            f"Keras' backend is {keras.backend.backend()!r}, and tillroll trains with TensorFlow: "
            "set KERAS_BACKEND=tensorflow before Keras is imported"
        )
    if (image_data_format := keras.config.image_data_format()) != "channels_last":
        raise ValueError(
            f"Keras' image_data_format is {image_data_format!r}, and images of tillroll have their "
            "channels last: set it to 'channels_last' in keras.json, or by "
            "keras.config.set_image_data_format"
        )


def check_keras_model(model: Any) -> None:
    """Checks Keras' settings, and that a model is of Keras 3.

    Raises:
      ValueError: a setting differs, or the model is of another library.
    """
    check_keras()
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"the model must be a keras.Model of Keras 3, got {type(model).__module__}."
            f"{type(model).__qualname__}: unset TF_USE_LEGACY_KERAS, or make it with `import keras`"
        )


@contextlib.contextmanager
def dtype_policy(name: str) -> Iterator[None]:
    """Sets the policy of the layers made in the block; it is the user's outside of it.

    Args:
      name: a policy of Keras, such as "float32".
    """
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
