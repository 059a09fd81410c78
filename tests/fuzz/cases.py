"""Random cases: other ones every day, and the same ones again for the same seed.

Environment variables:
  TILLROLL_FUZZ_SEED: the seed, a number; by default the day, such as 20261128.
  TILLROLL_FUZZ_CASE: number of the only case to run.
  TILLROLL_FUZZ_MINUTES: minutes for each test, instead of its number of cases; `make fuzz` sets it.
"""

import itertools
import os
import random
import time
from collections.abc import Iterator

SEED = int(os.environ.get("TILLROLL_FUZZ_SEED") or time.strftime("%Y%m%d"))
_CASE = os.environ.get("TILLROLL_FUZZ_CASE")
_MINUTES = float(os.environ.get("TILLROLL_FUZZ_MINUTES") or 0)


def random_cases(count: int) -> Iterator[random.Random]:
    """Yields a generator of random numbers for each case, and prints how to run it again.

    Args:
      count: number of cases if no minutes are given.
    """
    deadline = time.monotonic() + 60 * _MINUTES
    for number in [int(_CASE)] if _CASE else itertools.count():
        if not _CASE and (time.monotonic() >= deadline if _MINUTES else number >= count):
            return
        print(f"TILLROLL_FUZZ_SEED={SEED} TILLROLL_FUZZ_CASE={number}")
        yield random.Random(f"{SEED} {number}")
