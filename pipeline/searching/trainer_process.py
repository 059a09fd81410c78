"""Runs `pipeline.train` in a process that ends with the one that started it.

A search that is killed can't end its trainer, and a trainer that goes on would keep the run folder
and the device. Linux tells it by SIGTERM instead: it writes a checkpoint and ends.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int) -> None:
    """Runs the trainer with this process's further arguments.

    Args:
      parent: id of the process that started this one.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it was killed before the line above
        sys.exit(128 + signal.SIGTERM)
    runpy.run_module("pipeline.train", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv.pop(1)))
