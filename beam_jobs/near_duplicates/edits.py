"""Costs of numbers that differ: low where an OCR engine may have misread one as the other."""

from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.fingerprints import MAX_DIGITS, TIME_OF_DAY, NumberArray

LOST_DIGIT, CONFUSED_DIGIT, OTHER_DIGIT, OTHER_NUMBER = 0, 1, 2, 4
_LOOK_ALIKE = np.zeros((10, 10), bool)  # digits, in print
for _pair in ("06", "08", "09", "14", "17", "27", "35", "38", "49", "56", "58", "68", "89"):
    _LOOK_ALIKE[[int(_pair[0]), int(_pair[1])], [int(_pair[1]), int(_pair[0])]] = True
_SHORT = 4  # digits; where two of fewer differ, little is left in common
_POWERS = 10 ** np.arange(MAX_DIGITS + 1, dtype=np.int64)

CostArray = npt.NDArray[np.int8]


def edit_costs(first: NumberArray, second: NumberArray) -> CostArray:
    """Returns what speaks against two different numbers being one that was misread, pair by pair.

    - 0 where one has a digit more, such as 1250 and 120: OCR engines lose digits that they take for
      letters, but the numbers of two purchases have the same length.
    - 1 where one digit is another one that looks alike.
    - 2 where one digit is any other, or two edits make one number from the other.
    - 4 where they differ by more.

    Args:
      first, second: codes of the numbers, uint32 [n], see `number_code`.
    """
    (first_length, first_digits), (second_length, second_digits) = map(_digits, (first, second))
    costs = np.full(len(first), OTHER_NUMBER, np.int8)
    near = np.flatnonzero(np.abs(first_length - second_length) <= 2)
    lengths = np.stack([first_length[near], second_length[near]])
    first_near, second_near = first_digits[near], second_digits[near]
    edits = _edit_distances(first_near, second_near, *lengths)
    costs[near[(edits == 1) | ((edits == 2) & (lengths.max(axis=0) >= _SHORT))]] = OTHER_DIGIT
    costs[near[(edits == 1) & (lengths[0] != lengths[1])]] = LOST_DIGIT
    replaced = np.flatnonzero((edits == 1) & (lengths[0] == lengths[1]))
    place = (first_near[replaced] != second_near[replaced]).argmax(axis=1)
    look_alike = _LOOK_ALIKE[first_near[replaced, place], second_near[replaced, place]]
    costs[near[replaced[look_alike]]] = CONFUSED_DIGIT
    return costs


def _digits(codes: NumberArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
    """Returns how many digits numbers have, int64 [n], and the digits, int8 [n, 9], -1 behind."""
    values = (codes & np.uint32(TIME_OF_DAY - 1)).astype(np.int64)
    lengths = np.searchsorted(_POWERS, values, side="right") - 1
    places = lengths[:, None] - 1 - np.arange(MAX_DIGITS)
    digits = values[:, None] // _POWERS[np.maximum(places, 0)] % 10
    return lengths, np.where(places >= 0, digits, -1).astype(np.int8)


def _edit_distances(
    first: npt.NDArray[np.int8],
    second: npt.NDArray[np.int8],
    first_length: npt.NDArray[np.int64],
    second_length: npt.NDArray[np.int64],
) -> npt.NDArray[Any]:
    """Returns the edits that make one row of digits from the other (Levenshtein 1966), int8 [n]."""
    columns = np.arange(MAX_DIGITS + 1, dtype=np.int8)
    row = np.tile(columns, (len(first), 1))
    result = np.zeros(len(first), np.int8)
    for place in range(MAX_DIGITS):
        deleted = row + np.int8(1)
        replaced = row[:, :-1] + (first[:, place, None] != second)
        deleted[:, 1:] = np.minimum(deleted[:, 1:], replaced)
        # Each digit that is inserted costs one more than the column before.
        row = np.minimum.accumulate(deleted - columns, axis=1) + columns
        ends = np.flatnonzero(first_length == place + 1)
        result[ends] = row[ends, second_length[ends]]
    return result
