"""The error of a disk that is full, whichever way it is told."""

import errno
import os

import tensorflow as tf

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)


def disk_full_reason(error: Exception) -> str | None:
    """The kernel's words for a full disk or a used up quota, None where it is another error."""
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno in _NUMBERS else None
    if not isinstance(error, tf.errors.OpError):
        return None
    # TensorFlow's tells the kernel's words alone, among its own.
    return next((text for text in map(os.strerror, _NUMBERS) if text in str(error)), None)
