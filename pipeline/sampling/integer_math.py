"""Integer arithmetic of the plan, written once for NumPy and for TensorFlow.

TensorFlow has permutations by index (`tf.random.experimental.index_shuffle`) and hashes of its
own. They have no twin in NumPy, in which the plan is tested and explained, and TensorFlow may
change them from release to release, which would change the batches of a resumed run.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

ODD = 0x9E3779B1  # times a small number, it fills 32 bits
_SHUFFLE_ROUNDS = 24
_WORD = (1 << 32) - 1


class Arrays(Protocol):
    """Functions of an array library that the arithmetic needs beside the operators; all int64."""

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """`a` where the condition holds, else `b`."""

    def searchsorted(self, ascending: Any, values: Any) -> Any:
        """Number of elements of `ascending` that are at most each value."""

    def take(self, array: Any, positions: Any) -> Any:
        """Elements of `array` [n] at these positions."""

    def argsort(self, values: Any) -> Any:
        """Positions that sort distinct values."""

    def cumsum(self, values: Any) -> Any:
        """Running sum."""

    def shift_right(self, values: Any, bits: int) -> Any:
        """Values divided by a power of two, rounded down."""

    def iterate(self, times: int, body: Callable[[Any, Any], Any], values: Any) -> Any:
        """Replaces values by `body(number, values)`, for each number below `times`.

        They are an array, or a tuple of arrays, and keep their shapes.
        """


class NumpyArrays:
    """`Arrays` of NumPy."""

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)

    def searchsorted(self, ascending: Any, values: Any) -> Any:
        return np.searchsorted(ascending, values, side="right")

    def take(self, array: Any, positions: Any) -> Any:
        return array[positions]

    def argsort(self, values: Any) -> Any:
        return np.argsort(values)

    def cumsum(self, values: Any) -> Any:
        return np.cumsum(values)

    def shift_right(self, values: Any, bits: int) -> Any:
        return values >> bits

    def iterate(self, times: int, body: Callable[[Any, Any], Any], values: Any) -> Any:
        return functools.reduce(lambda each, number: body(number, each), range(times), values)


NUMPY = NumpyArrays()


def sum_of_floors(count: Any, factor: int, offset: Any, modulus: int, xp: Arrays) -> Any:
    """Sum of floor((factor * i + offset) / modulus) over 0 <= i < count.

    With count 4, factor 3, offset 2 and modulus 7 these are the floors of 2/7, 5/7, 8/7 and 11/7,
    which are 0 0 1 1: the sum is 2.

    The Euclidean algorithm for sums of floors (Graham, Knuth, Patashnik, Concrete Mathematics,
    3.5), whose course depends on factor and modulus alone.
    """
    # The rounds are a loop, in a graph as well: written out, the 22 rounds of an epoch's sums would
    # be hundreds of ops to trace.
    rounds = np.array(_euclid(factor, modulus), np.int64)

    def add_up(number: Any, values: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        total, count, offset = values
        quotient, factor, modulus = (xp.take(column, number) for column in rounds.T)
        # Multiples of the modulus in factor and offset leave the floors as whole numbers.
        total = total + count * (count - 1) // 2 * quotient + count * (offset // modulus)
        # What is left counts the grid points below a line that rises by less than 1 a column.
        # Counted row by row, they are such a sum again, with factor and modulus exchanged.
        reached = factor * count + offset % modulus
        return total, reached // modulus, reached % modulus

    zero = count * 0 + offset * 0  # of the shape that all have, which a loop may not change
    return xp.iterate(len(rounds), add_up, (zero, count + zero, offset + zero))[0]


def _euclid(factor: int, modulus: int) -> list[tuple[int, int, int]]:
    """Lists (quotient, remainder, modulus) of the rounds of Euclid's algorithm."""
    rounds = []
    while modulus:
        rounds.append((factor // modulus, factor % modulus, modulus))
        factor, modulus = modulus, factor % modulus
    return rounds


def permute(position: Any, size: Any, key: Any, xp: Arrays) -> Any:
    """Finds the element at a position of a random order of `size` elements.

    The key decides the order. Elements and positions are 0 to size - 1.

    Swap-or-not (Hoang, Morris, Rogaway, "An Enciphering Scheme Based on a Card Shuffle", 2012).
    """

    # Each round pairs the positions whose sum is `turn`, modulo the size: with size 5 and turn 7
    # these are 0 and 2, 3 and 4, and 1 by itself. Both of a pair hash the same number, so both swap
    # or both stay, and every round is a permutation. So no table is needed, and any size will do.
    def swap_or_not(number: Any, position: Any) -> Any:
        turn = mix(key + number * ODD, xp)
        partner = turn % size - position
        partner = xp.where(partner < 0, partner + size, partner)
        higher = xp.where(position < partner, partner, position)
        swap = mix((higher * ODD & _WORD) + turn, xp) & 1
        return xp.where(swap > 0, partner, position)

    return xp.iterate(_SHUFFLE_ROUNDS, swap_or_not, position)


def mix(values: Any, xp: Arrays) -> Any:
    """32 well mixed bits of each number below 2**62 (Wellons, "Hash function prospector", 2018)."""
    # The factors are below 2**31, so that their products with 32 bits stay below 2**63.
    values = (values ^ xp.shift_right(values, 32)) & _WORD
    values = ((values ^ xp.shift_right(values, 16)) * 0x7FEB352D) & _WORD
    # This one is 0x846CA68B less 2**32: negative, but with the same lower bits.
    values = ((values ^ xp.shift_right(values, 15)) * -0x7B935975) & _WORD
    return values ^ xp.shift_right(values, 16)
