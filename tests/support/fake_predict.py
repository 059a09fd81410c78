"""`beam_jobs.predict` with the TensorFlow that stands in, for a process that is to be killed."""

import sys
from collections.abc import Sequence

from beam_jobs.predict import main as predict
from tests.support.fake_model import STAND_IN, stand_in


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command, whose other processes import the same."""
    sys.path.insert(0, str(STAND_IN))  # which the processes that it starts get
    sys.modules["tensorflow"] = stand_in()
    return predict(argv)


if __name__ == "__main__":
    sys.exit(main())
