"""Values in messages: whole if they are short, cut if not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.shown import MESSAGE_CHARACTERS, VALUE_CHARACTERS, shortened, shown

MEGABYTE = 1 << 20


@given(st.text(max_size=2 * VALUE_CHARACTERS) | st.binary(max_size=2 * VALUE_CHARACTERS))
def test_a_value_is_whole_or_cut(value: Any) -> None:
    whole = repr(value)
    if len(whole) <= VALUE_CHARACTERS:
        assert shown(value) == whole
    else:
        assert shown(value) == whole[:VALUE_CHARACTERS] + "…"


@pytest.mark.parametrize(
    "value",
    ["x" * MEGABYTE, "\udc89" * MEGABYTE, b"\x89" * MEGABYTE, ["x" * MEGABYTE], {"a": "x" * 999}],
    ids=["text", "surrogates", "bytes", "list", "object"],
)
def test_a_long_value_is_cut(value: Any) -> None:
    assert len(shown(value)) == VALUE_CHARACTERS + 1
    assert shown(value).endswith("…")


def test_a_short_text_stays() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "abc…"


def test_the_message_of_a_rejection_is_cut() -> None:
    error = RejectionError(Reason.CORRUPT, "x" * MEGABYTE)
    assert error.message == "x" * MESSAGE_CHARACTERS + "…"
    assert len(str(error)) < 2 * MESSAGE_CHARACTERS
