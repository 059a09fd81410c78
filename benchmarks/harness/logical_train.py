"""Runs `pipeline.train` on several logical CPUs.

Use: `python -m benchmarks.harness.logical_train N ARGUMENT…`.
"""

import os
import sys
from collections.abc import Sequence

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

from pipeline.distribution.strategies import make_logical_cpus
from pipeline.train import main as train


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    count, *arguments = sys.argv[1:] if argv is None else argv
    make_logical_cpus(int(count))
    return train(arguments)


if __name__ == "__main__":
    sys.exit(main())
