"""The boundary to TensorFlow: the only module of this half that imports it, and late.

A worker imports TensorFlow when the first of its images is to be predicted. A process loads the
model once, whichever of its threads is first.
"""

import importlib.util
import os
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from beam_jobs.errors import BuildError
from beam_jobs.models.saved_model import SavedModel

Outputs = Mapping[str, npt.NDArray[Any]]  # name to array [images, …]
INSTALL = (
    "predictions are made with TensorFlow, which is not installed here: pip install "
    "'tillroll[build,train]', wherever the job's workers run"
)
_LOADING = threading.Lock()


class PredictionError(Exception):
    """The model can't predict these images; the message is TensorFlow's."""


class Model(Protocol):
    """A model, in this process or in another."""

    def predict(self, images: Sequence[bytes]) -> Outputs:
        """Predicts image files.

        Raises:
          PredictionError: the model refuses one of them, or can't go on.
        """


def has_tensorflow() -> bool:
    """Returns whether TensorFlow is installed, without importing it."""
    return importlib.util.find_spec("tensorflow") is not None


@cache
def tensorflow_version() -> str:
    """Version of the TensorFlow of this machine, "" without one; imports it only if need be."""
    try:
        return metadata.version("tensorflow")
    except metadata.PackageNotFoundError:  # a package of another name, such as tensorflow-cpu
        return _tensorflow().__version__ if has_tensorflow() else ""


def load(model: SavedModel) -> "LoadedModel":
    """Returns the model, which is loaded once in a process.

    Raises:
      BuildError: it can't be loaded.
    """
    with _LOADING:  # of two threads, the second one finds it
        return _load(model)


@cache
def _load(model: SavedModel) -> "LoadedModel":
    return LoadedModel(model)


class LoadedModel:
    """A model in the memory of this process.

    It uses one thread for an operation, as kernels divide sums among their threads. So equal
    batches give equal bytes on any number of workers. A job uses several cores by several
    processes.
    """

    def __init__(self, model: SavedModel) -> None:
        tensorflow = _tensorflow()
        self._tensorflow = tensorflow
        self._model = model
        _use_one_thread(tensorflow)
        with model.on_this_machine() as directory:
            try:
                # Variables are freed with the model, so it must outlive its signature.
                self._loaded = tensorflow.saved_model.load(directory, tags=["serve"])
                self._signature = self._loaded.signatures[model.signature]
            except (tensorflow.errors.OpError, OSError, ValueError, KeyError) as error:
                raise BuildError(
                    f"the model {model.path} can't be loaded with TensorFlow "
                    f"{tensorflow.__version__}: {_first_line(error)}; export it anew"
                ) from error

    def predict(self, images: Sequence[bytes]) -> Outputs:
        """Predicts image files.

        Raises:
          PredictionError: the model refuses one of them.
          BuildError: the machine has too little memory, or outputs are not of a value an image.
        """
        errors = self._tensorflow.errors
        batch = self._tensorflow.constant(list(images))
        try:
            outputs = self._signature(**{self._model.input: batch})
            arrays = {name: _array(tensor) for name, tensor in outputs.items()}
        except (errors.ResourceExhaustedError, MemoryError) as error:
            raise BuildError(
                f"this machine has too little memory to predict a batch of {len(images)} images: "
                "give it more, or set a smaller --batch-size where there is one"
            ) from error
        except (errors.OpError, ValueError, TypeError) as error:
            raise PredictionError(_first_line(error)) from error
        for name, array in arrays.items():
            if array.shape[:1] != (len(images),):
                raise BuildError(
                    f"the model {self._model.path} gives {name!r} of shape {array.shape} for "
                    f"{len(images)} images: the first side must be the images"
                )
        return arrays


def _tensorflow() -> Any:
    if not has_tensorflow():
        raise BuildError(INSTALL)
    # Before the import: TensorFlow logs in C++, which no handler of Python sees.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow

    return tensorflow


def _use_one_thread(tensorflow: Any) -> None:
    threading_ = tensorflow.config.threading
    try:
        threading_.set_intra_op_parallelism_threads(1)
        threading_.set_inter_op_parallelism_threads(1)
    except RuntimeError as error:
        raise BuildError(
            "TensorFlow is in use in this process already, with several threads: run the job as a "
            "program of its own"
        ) from error


def _array(tensor: Any) -> npt.NDArray[Any]:
    array = tensor.numpy()
    # NumPy lacks bfloat16, and readers of files lack half: both are widened, which is exact.
    return array.astype(np.float32) if tensor.dtype.name in ("bfloat16", "float16") else array


def _first_line(error: Exception) -> str:
    """First line of what TensorFlow says: below it stands where in the graph it happened."""
    text = getattr(error, "message", None) or str(error)
    return text.strip().split("\n")[0] or repr(error)
