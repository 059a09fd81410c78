"""Calls of Python from TensorFlow's threads, which must not be under way when Python ends.

A thread of tf.data that waits for Python's global lock while Python ends never gets it. Its call
never returns, and the process hangs where the dataset is destroyed, which waits for the call. This
happens to `tf.numpy_function` in a pipeline that works ahead: in two of eight runs of a loop that
takes some batches and ends. TensorFlow refuses only calls that begin after Python has ended.

So there is a gate in the graph in front of each call. It is a number that TensorFlow and NumPy see
in the same memory, which a thread reads without Python. When Python is about to end, the gate is
closed, and those that have passed it are waited for.
"""

import atexit
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.input.garbage import collect_apart
from pipeline.records.reader import shared
from pipeline.records.table import aligned_empty

# TensorFlow copies tensors of up to 128 elements into a graph, where no change would reach them.
_ELEMENTS = 256
# In which a thread that has passed the gate gets the global lock: Python hands it on every 5 ms.
_PASSING_S = 0.02
_CLOSED = "Python is about to end: no batches are made any more"
_FOREIGN = (
    "this dataset was made by another process, which alone can run it: make it with "
    "Reading(portable=True)"
)
_DESTROYED = (
    "this dataset was destroyed while its batches were made: keep it as long as its iterator"
)


class PythonCalls:
    """The calls of this process; `get_calls` returns the only object."""

    def __init__(self) -> None:
        self._closed = aligned_empty(_ELEMENTS, np.int64)
        self._closed[:] = 0
        with tf.init_scope(), tf.device("CPU"):
            self._gate = shared(self._closed)
        self._running: set[threading.Thread] = set()
        # In another process, TensorFlow would call whatever has the same number there.
        self._process = int.from_bytes(os.urandom(7), "little")
        atexit.register(self.close)
        collect_apart()

    def close(self) -> None:
        """Fails all later calls, and waits for those that have begun."""
        self._closed[:] = 1
        time.sleep(_PASSING_S)
        while self._running:
            time.sleep(_PASSING_S)

    def run(
        self, process: int, function: Callable[..., Any], arrays: Sequence[npt.NDArray[Any]]
    ) -> Any:
        """Calls a function in a thread of TensorFlow's, for the graph of this process."""
        if process != self._process:
            raise ValueError(_FOREIGN)
        thread = threading.current_thread()
        self._running.add(thread)
        try:
            return function(*arrays)
        finally:
            self._running.discard(thread)

    def call(
        self, run: Callable[..., Any], arguments: Sequence[tf.Tensor], dtypes: Sequence[Any]
    ) -> Any:
        """Calls `run` in a graph, with the number of this process first."""
        is_open = tf.debugging.Assert(tf.equal(self._gate[0], 0), [_CLOSED])
        with tf.control_dependencies([is_open]):
            process = tf.constant(self._process, tf.int64)
            return tf.numpy_function(run, [process, *arguments], dtypes, stateful=False)


class PythonFunction:
    """A function of NumPy arrays that graphs call for as long as this object lives.

    TensorFlow keeps what `tf.numpy_function` calls in the default graph, which lives as long as the
    process, or until `keras.backend.clear_session()`. So the graph gets a function that neither
    keeps this object alive, with all the files and columns of a reader, nor ends before it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        calls, reference = get_calls(), weakref.ref(self)

        def run(process: np.int64, *arrays: npt.NDArray[Any]) -> Any:
            target = reference()
            if target is None:
                raise ValueError(_DESTROYED)
            return calls.run(int(process), target._function, arrays)

        self._function, self._run = function, run

    def call(self, arguments: Sequence[tf.Tensor], dtypes: Sequence[Any]) -> Any:
        """Calls the function in a graph, as `tf.numpy_function` does.

        It counts as stateless, so that iterators can be saved.
        """
        return get_calls().call(self._run, arguments, dtypes)


@functools.cache
def get_calls() -> PythonCalls:
    """Returns the calls of this process; its first use sets up TensorFlow's devices."""
    return PythonCalls()
