"""The order of the rows of a batch, in which every part of a batch is a fair sample of it.

`BatchPlan.rows` deals a batch stratum by stratum: aaaabbcc. A replica takes every R-th row, which
is exact for any number R of replicas, but its rows still lie stratum by stratum. Whoever splits
them further (tf.split, `experimental_distribute_dataset`, `batch[:k]`) would get all of one stratum
in one part and none in the next. So the rows of a replica are put into another order. The
mixed-radix van der Corput sequence reverses the digits of a position, which for 8 rows gives

    position  0 1 2 3 | 4 5 6 7
    row       0 4 2 6 | 1 5 3 7

so that each half takes every 2nd row, each quarter every 4th. Each step also turns the rows by a
random number, so that over the steps every position gets each stratum at its share.
"""

from typing import Any

import numpy as np

from pipeline.sampling.integer_math import NUMPY, Arrays, mix
from pipeline.sampling.plan import GOLDEN, IntArray


def replica_rows(
    step: Any, replica: Any, *, replicas: int, batch_units: int, seed: int, xp: Arrays = NUMPY
) -> Any:
    """Computes the rows of a global batch that a replica gets, in their order.

    A part is off its fair share of a stratum by less than 1 unit where it is all rows of the
    replica, or one of 2, 4, 8, … equal parts of them. With up to 1,024 units a replica, any other
    equal part is off by less than 4, and the first rows by less than 5. On average over steps,
    every part is exact.

    Args:
      step: int64 [...], global step over all epochs.
      replica: int64 [...], which broadcasts with `step`.
      replicas: replicas that share the batch.
      batch_units: units of the batch.
      seed: `BatchPlan.seed`.
      xp: array library.

    Returns:
      int64 [..., batch_units / replicas].
    """
    size = batch_units // replicas
    turn = mix(mix(step, xp) + (seed ^ 2), xp) % size
    return replica[..., None] + (turn[..., None] + van_der_corput_order(size)) % size * replicas


def van_der_corput_order(size: int) -> IntArray:
    """Puts the numbers below `size` into van der Corput's order, int64 [size].

    Neighbors in that order are far apart.

    The first digit counts the parts into which positions are split first. It becomes the last of
    the number. The radices are the prime factors of `size`, smallest first.
    """
    position, numbers = np.arange(size), np.zeros(size, np.int64)
    weight = 1
    # Of 6 rows, position 4 lies in the second half (digit 1 of radix 2) and is the second there
    # (digit 1 of radix 3). Reversed, the digits weigh 1 and 2: row 3, in the order 0 2 4 | 1 3 5.
    for radix in _prime_factors(size):
        digit = position * weight * radix // size % radix
        numbers += digit * _stride(radix) % radix * weight
        weight *= radix
    return numbers


def _prime_factors(number: int) -> list[int]:
    """Prime factors in ascending order."""
    factors, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors


def _stride(radix: int) -> int:
    """Returns the digit after 0 in an order of digits in which neighbors are far apart."""
    return max(1, round(radix * GOLDEN)) if radix > 3 else 1
