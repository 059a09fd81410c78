"""Recognizes errors of a full disk."""

import errno
import os

import tensorflow as tf

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)


def disk_full_reason(error: Exception) -> str | None:
    """Returns the kernel's words for a full disk or a used up quota; None for other errors."""
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno in _NUMBERS else None
    if not isinstance(error, tf.errors.OpError):
        return None
    # TensorFlow's error has no number, but the kernel's words among its own.
    return next((text for text in map(os.strerror, _NUMBERS) if text in str(error)), None)
