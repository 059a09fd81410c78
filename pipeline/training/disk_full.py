"""The error of a disk that is full, whichever way it is told."""

import errno
import os

import tensorflow as tf

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: Exception) -> bool:
    """Whether it is Python's or TensorFlow's error of a full disk, or of a used up quota."""
    if isinstance(error, OSError):
        return error.errno in _NUMBERS
    # TensorFlow's tells the kernel's words alone.
    texts = tuple(map(os.strerror, _NUMBERS))
    return isinstance(error, tf.errors.OpError) and any(text in str(error) for text in texts)
