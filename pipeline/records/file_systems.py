"""Loads file systems that TensorFlow lacks from tensorflow-io."""

import ctypes
import functools
import importlib

import tensorflow as tf

# Those of tensorflow-io 0.37.1, its last release.
TENSORFLOW_IO_SCHEMES = ("az", "har", "hdfs", "http", "https", "oss", "s3", "viewfs")


def load_file_system(path: str) -> None:
    """Loads tensorflow-io if TensorFlow needs it to read a path.

    Raises:
      ValueError: nothing that is installed can read the path.
    """
    scheme, separator, _ = path.partition("://")
    if not separator:
        return
    if scheme not in _schemes():
        _load_tensorflow_io(scheme)
    if scheme == "s3":
        _exit_before_destructors()


def _load_tensorflow_io(scheme: str) -> None:
    own = ", ".join(_schemes())
    if scheme not in TENSORFLOW_IO_SCHEMES:
        beam = "; what Beam calls azfs:// is az:// here" if scheme == "azfs" else ""
        raise ValueError(
            f"neither TensorFlow nor tensorflow-io can read {scheme}://{beam}: choose a local "
            f"directory or one of {own}, or {', '.join(TENSORFLOW_IO_SCHEMES)} with "
            "pip install 'tillroll[io]'"
        )
    remedy = (
        "pip install 'tillroll[io]' brings tensorflow-io and the TensorFlow 2.17 it works with; "
        f"without it, choose a local directory or one of {own}"
    )
    try:
        importlib.import_module("tensorflow_io")
    except ImportError as error:
        raise ValueError(
            f"TensorFlow {tf.__version__} can't read {scheme}:// by itself: {remedy}"
        ) from error
    if scheme not in _schemes():  # tensorflow-io has warned, with the symbols that are missing
        raise ValueError(
            f"TensorFlow {tf.__version__} can't read {scheme}:// by itself, and the file systems "
            f"of the tensorflow-io that is installed don't load with it: {remedy}"
        )


def _schemes() -> list[str]:
    return sorted(filter(None, tf.io.gfile.get_registered_schemes()))


@functools.cache
def _exit_before_destructors() -> None:
    """Keeps the exit status of a process that has used s3://.

    While a process exits, tensorflow-io's client of S3 calls a logger that is destroyed already.
    The process ends by SIGABRT, whatever its status was (tensorflow/io issues 1912 and 2039, fixed
    after the last release). So this has the C library end the process before it comes to the
    destructors of libraries loaded until now. Python has ended by then; only C's buffers are left
    to be written.
    """
    library = ctypes.CDLL(None)
    library.on_exit(library._exit, None)  # called with the status, last
    library.on_exit(library.fcloseall, None)
