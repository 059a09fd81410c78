"""Vocabularies: ids that never change."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.vocabulary import Vocabulary

TEXTS = st.sets(st.text(max_size=3), max_size=12)


def test_new_values_come_at_the_end_and_sorted() -> None:
    first = Vocabulary.sorted(["kiosk", "aral", "kiosk"])
    assert first.values == ("aral", "kiosk")
    second = first.grown(["zoo", "bakery", "aral"])
    assert second.values == ("aral", "kiosk", "bakery", "zoo")
    assert second.grown(["kiosk"]) == second
    assert len(second) == 4


@given(TEXTS, TEXTS)
def test_a_position_is_that_of_the_value(old: set[str], new: set[str]) -> None:
    vocabulary = Vocabulary.sorted(old).grown(new)
    assert set(vocabulary.values) == old | new
    for _ in range(2):
        positions = [vocabulary.position(value) for value in vocabulary.values]
        assert positions == list(range(len(vocabulary)))
        vocabulary = pickle.loads(pickle.dumps(vocabulary))


@pytest.mark.parametrize("value", ["", "b", "zz"])
def test_a_value_that_is_not_there(value: str) -> None:
    with pytest.raises(KeyError, match=repr(value)):
        Vocabulary(("kiosk", "aral")).position(value)
    with pytest.raises(KeyError):
        Vocabulary(()).position(value)
