"""Files of a dataset directory: Python reads local ones, TensorFlow the others.

TensorFlow is imported when the first remote file is read. So the local files of a dataset can be
read where it is not installed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def is_remote(path: str) -> bool:
    """Tells whether a path is a URL, such as s3://bucket/receipts."""
    return "://" in path


def read_file(path: str) -> bytes:
    """Reads a whole file.

    Raises:
      FileNotFoundError, PermissionError: as Python raises them for local files.
      OSError: any other error of the file system.
    """
    if not is_remote(path):
        return Path(path).read_bytes()
    import tensorflow as tf

    with _errors_of_python(), tf.io.gfile.GFile(path, "rb") as file:
        return file.read()


def why_missing(directory: str, name: str) -> str:
    """Returns the reason why a file is missing, or "" if it is there.

    Raises:
      ValueError: the file system gives another error.
    """
    path = os.path.join(directory, name)
    try:
        _look_for(path)
    except (FileNotFoundError, NotADirectoryError):
        return f"no file {name}"
    except PermissionError:
        # Without the right to list a bucket, S3 answers like this for missing files, too.
        return f"access to {name} is denied"
    except OSError as error:
        raise ValueError(f"{path} can't be read: {reason(error)}") from error
    return ""


def reason(error: OSError) -> str:
    """Returns what an error says, without the number and the path of Python's own text."""
    return error.strerror or str(error)


def _look_for(path: str) -> None:
    """Raises an OSError unless there is a file."""
    if not is_remote(path):
        Path(path).stat()
        return
    import tensorflow as tf

    with _errors_of_python():
        if path.startswith("s3://"):
            # `exists` returns False at any error of S3, so a passing error would bring back the
            # records that are left out.
            with tf.io.gfile.GFile(path, "rb") as file:
                file.read(1)
        elif not tf.io.gfile.exists(path):
            raise FileNotFoundError(path)


@contextmanager
def _errors_of_python() -> Iterator[None]:
    """Raises an OSError for an error of TensorFlow's file systems."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(error.message) from error
    except tf.errors.PermissionDeniedError as error:
        raise PermissionError(error.message) from error
    except tf.errors.OpError as error:
        raise OSError(error.message) from error
