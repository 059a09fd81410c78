"""Garbage collection in a thread of its own.

Python collects garbage in whichever thread happens to make an object. Where that is a thread of
tf.data, which calls Python for a batch, and the garbage holds the iterator that the thread works
for, say together with its exception, the thread destroys the iterator. That waits for all calls to
end, this one included: for ever. A thread that is none of tf.data's may wait for them.
"""

import atexit
import functools
import gc
import os
import threading

_EVERY_S = 0.1


class _Collector(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="garbage", daemon=True)
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            counts = zip(gc.get_count(), gc.get_threshold(), strict=True)
            # As Python does it: the oldest generation that is due, with all younger ones.
            due = [number for number, (count, limit) in enumerate(counts) if 0 < limit < count]
            if due:
                gc.collect(max(due))

    def end(self) -> None:
        self._ended.set()
        self.join()


@functools.cache
def collect_apart() -> None:
    """Has a thread collect garbage from now on, by Python's own thresholds, instead of Python.

    Where `gc` is disabled already, nothing changes: somebody else collects, or nobody does.
    """
    if not gc.isenabled():
        return
    gc.disable()
    collector = _Collector()
    collector.start()
    atexit.register(collector.end)
    os.register_at_fork(after_in_child=gc.enable)  # which has no such thread
