"""Costs of numbers that differ, against the edit distance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.near_duplicates.edits import (
    CONFUSED_DIGIT,
    LOST_DIGIT,
    OTHER_DIGIT,
    OTHER_NUMBER,
    edit_costs,
)
from schemas.fingerprints import TIME_OF_DAY, number_code


def cost(first: str, second: str) -> int:
    return int(edit_costs(*(np.array([number_code(n)], np.uint32) for n in (first, second)))[0])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("1250", "125", LOST_DIGIT),
        ("050", "50", LOST_DIGIT),
        ("123456789", "23456789", LOST_DIGIT),
        ("1250", "1280", CONFUSED_DIGIT),
        ("10", "16", CONFUSED_DIGIT),
        ("1250", "1350", OTHER_DIGIT),
        ("1824", "1843", OTHER_DIGIT),  # two edits of four digits
        ("502160349", "5021634", OTHER_DIGIT),
        ("250", "480", OTHER_NUMBER),  # two edits of three
        ("12", "47", OTHER_NUMBER),
        ("133755", "170854", OTHER_NUMBER),
        ("123456789", "12", OTHER_NUMBER),
    ],
)
def test_costs(first: str, second: str, expected: int):
    assert cost(first, second) == cost(second, first) == expected


def test_a_time_costs_as_its_digits():
    numbers = np.array([number_code("1231") | TIME_OF_DAY, number_code("1231")], np.uint32)
    others = np.array([number_code("1237"), number_code("1237") | TIME_OF_DAY], np.uint32)
    assert edit_costs(numbers, others).tolist() == [CONFUSED_DIGIT] * 2


def distance(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for at, digit in enumerate(first, 1):
        above, row = row, [at]
        for column, other in enumerate(second, 1):
            row.append(min(above[column] + 1, row[-1] + 1, above[column - 1] + (digit != other)))
    return row[-1]


NUMBERS = st.text("0123456789", min_size=2, max_size=9)


@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30), st.data())
def test_costs_follow_from_the_edit_distance(pairs: list[tuple[str, str]], data: st.DataObject):
    for number in [first for first, _ in pairs]:  # some that are near each other
        place = data.draw(st.integers(0, len(number) - 1))
        changed = data.draw(st.sampled_from(["", "7", "77"]))
        pairs.append((number, (number[:place] + changed + number[place + 1 :] + "00")[:9]))
    pairs = [pair for pair in pairs if pair[0] != pair[1]]
    columns = np.array([[*map(number_code, pair)] for pair in pairs], np.uint32).reshape(-1, 2)
    costs = edit_costs(columns[:, 0], columns[:, 1]).tolist()
    assert len(costs) == len(pairs)
    for (first, second), given_cost in zip(pairs, costs, strict=True):
        edits, equal_length = distance(first, second), len(first) == len(second)
        if edits == 1:
            assert (given_cost == LOST_DIGIT) is not equal_length
            assert given_cost <= OTHER_DIGIT
        elif edits == 2 and max(len(first), len(second)) >= 4:
            assert given_cost == OTHER_DIGIT
        else:
            assert given_cost == OTHER_NUMBER
