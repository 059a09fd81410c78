"""The list of names that were merged."""

import pytest

from schemas.spellings import Spellings

SPELLINGS = Spellings(names={"aldy": "aldi", "ALDI.": "aldi"})


def test_a_file_gives_back_what_was_written():
    assert Spellings.from_json(SPELLINGS.to_json()) == SPELLINGS
    other = Spellings(names={"ALDI.": "aldi", "aldy": "aldi"})
    assert other.to_json() == SPELLINGS.to_json()


@pytest.mark.parametrize(
    "text", ["", "{}", SPELLINGS.to_json()[:-9], SPELLINGS.to_json().replace('"aldi"', "3")]
)
def test_a_damaged_file_is_named(text: str):
    with pytest.raises(ValueError, match="spellings"):
        Spellings.from_json(text)
