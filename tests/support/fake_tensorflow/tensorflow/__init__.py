"""Stands in for TensorFlow where a test is about all that surrounds a model.

A model predicts from the width of an image, so that a test decides by it what happens: see
`tests.support.fake_model`.
"""

import io
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image

from tests.support.fake_model import (
    FAILS,
    FAILS_IN_A_BATCH,
    KILLED,
    LOADS,
    NOT_FINITE,
    NOT_TEXT,
    OUT_OF_MEMORY,
    SLEEPS,
)

__version__ = "0.0"


class OpError(Exception):
    """Errors of TensorFlow have a message."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ResourceExhaustedError(OpError):
    """TensorFlow's."""


class _Threading:
    def set_intra_op_parallelism_threads(self, threads: int) -> None:
        assert threads == 1

    set_inter_op_parallelism_threads = set_intra_op_parallelism_threads


class _Tensor:
    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)
        self.dtype = SimpleNamespace(name=self._values.dtype.name)

    def numpy(self) -> Any:
        return self._values


def _signature(image_bytes: list[bytes]) -> dict[str, _Tensor]:
    """Predicts the width, 1 / width and a text for each image."""
    widths = []
    for file in image_bytes:
        image = Image.open(io.BytesIO(file))
        width, _ = image.size
        if width == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
        if width == SLEEPS:
            time.sleep(60)
        if width == OUT_OF_MEMORY:
            raise ResourceExhaustedError("OOM when allocating tensor")
        if width == FAILS or (width == FAILS_IN_A_BATCH and len(image_bytes) > 1):
            raise OpError("Invalid JPEG data or crop window\n\t [[{{node map}}]]")
        widths.append(width)
    inverse = [np.nan if width == NOT_FINITE else 1 / width for width in widths]
    # 40 to 59 pixels, 60 to 79 and so on are near each other; the noise differs with the width.
    embeddings = np.eye(4)[[width // 20 % 4 for width in widths]] * 3
    embeddings += np.array([[width % 7, 0, 0, width % 3] for width in widths]) / 50
    embeddings += np.array(inverse)[:, None] * 0
    texts = [b"\xff" if width == NOT_TEXT else b"%d pixels" % width for width in widths]
    return {
        "width": _Tensor(np.array(widths, np.int64)),
        "inverse": _Tensor(np.array([[each, len(widths)] for each in inverse], np.float32)),
        "embedding": _Tensor(embeddings.astype(np.float32)),
        "text": _Tensor(np.array(texts, object)),
        "file_bytes": _Tensor(np.array([file[:4] for file in image_bytes], object)),
    }


class _SavedModels:
    def load(self, directory: str, tags: list[str]) -> Any:
        assert tags == ["serve"]
        assert Path(directory, "saved_model.pb").exists()
        if listed := os.environ.get(LOADS):
            with Path(listed).open("a") as file:
                file.write(f"{os.getpid()}\n")
        return SimpleNamespace(signatures={"serving_default": _signature})


def constant(values: list[bytes]) -> list[bytes]:
    """Returns the values."""
    return values


config = SimpleNamespace(threading=_Threading())
errors = SimpleNamespace(OpError=OpError, ResourceExhaustedError=ResourceExhaustedError)
saved_model = _SavedModels()
