"""Processes that say how TensorFlow has set up its memory: `COMMAND [ARGUMENT ...]`.

TensorFlow chooses its allocator once, so that every measurement needs a process of its own, and
imports here stand where they are part of what is measured.
"""

import contextlib
import ctypes
import resource
import sys
from collections.abc import Callable

PR_SET_THP_DISABLE = 41


def touched_anew(begin: str, *batches: str) -> None:
    """Prints the share of each batch's memory that the kernel has to hand out again.

    Args:
      begin: name in `BEGINNINGS` of what the process does first.
      *batches: names in `BATCHES` of what batches consist of.
    """
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # huge pages would be few faults
    BEGINNINGS[begin]()
    for batch in batches:
        size, step = BATCHES[batch]()
        copies = [step() for _ in range(4)][:1]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(8):
            copies[0] = step()
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        print(faults * resource.getpagesize() / (8 * size))


def made_by_name() -> None:
    """Makes a strategy."""
    from pipeline.distribution.strategies import make_strategy

    make_strategy("default")


def in_training() -> None:
    """Starts training without a dataset, which is found out when there is a strategy."""
    from pipeline.train import main

    with contextlib.suppress(SystemExit):
        main(["no/such/dataset", "--run-dir", "no/such/run"])


def images() -> tuple[int, Callable[[], object]]:
    """Returns the size of a batch of pixels in bytes, and what makes one."""
    import tensorflow as tf

    size = 256 << 20
    batch = tf.zeros([size], tf.uint8)
    return size, lambda: batch + 1


def records() -> tuple[int, Callable[[], object]]:
    """Returns the size of a batch of texts in bytes, and what makes one."""
    import tensorflow as tf

    size = 32 << 20
    batch = tf.constant([bytes(size // 32)] * 32)
    return size, lambda: tf.strings.join([batch, "."])


def tensorflow_has_run() -> None:
    """Prints whether TensorFlow has run, asked twice; if that changed nothing; and after an op."""
    import tensorflow as tf

    from pipeline.distribution.host_memory import _tensorflow_has_run

    before = tf.config.threading.get_inter_op_parallelism_threads()
    print(_tensorflow_has_run(), _tensorflow_has_run())
    print(before == tf.config.threading.get_inter_op_parallelism_threads())
    tf.zeros([1])
    print(_tensorflow_has_run())


BEGINNINGS = {"made by name": made_by_name, "in training": in_training}
BATCHES = {"images": images, "records": records}
COMMANDS = {"touched_anew": touched_anew, "tensorflow_has_run": tensorflow_has_run}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
