"""Names: equal texts for equal names, and no name for what is none."""

import datetime
import math
import unicodedata
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.sources.names import (
    MAX_CHARACTERS,
    forms_of,
    in_nfc,
    none_for_null_words,
    other_forms,
    parse_key,
    parse_name,
)


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (None, ""),
        (math.nan, ""),
        ("", ""),
        (" \t", ""),
        (" Bäcker\n", "Bäcker"),
        ("Cafe\u0301", "Caf\u00e9"),
        ("\u212b", "\u00c5"),  # the sign of the unit ångström
        (0, "0"),
        (7, "7"),
        (7.0, "7"),
        (-7.0, "-7"),
        (-0.0, "0"),
        (7.5, "7.5"),
        (2**60 + 1, "1152921504606846977"),
        (2.0**53 - 1, "9007199254740991"),
        (Decimal("7.00"), "7"),
        (Decimal("7.50"), "7.50"),
        (Decimal("123456789012345678901"), "123456789012345678901"),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        ("7.0", "7.0"),
        ("x" * MAX_CHARACTERS, "x" * MAX_CHARACTERS),
    ],
)
def test_names(raw: Any, name: str) -> None:
    assert parse_name("layout", raw) == name


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (True, "the layout must be a name, got True"),
        (["a", "b"], "the layout must be a name, got ['a', 'b']"),
        ({"path": "a"}, "the layout must be a name, got {'path': 'a'}"),
        (b"\x89PNG", r"the layout must be a name, got b'\x89PNG'"),
        (math.inf, "the layout must be a name, got inf, which may have lost digits: write it as"),
        (2.0**53, "the layout must be a name, got 9007199254740992.0, which may have lost digits"),
        (Decimal("Infinity"), "the layout must be a name, got Decimal('Infinity'), which may"),
        ("x" * (MAX_CHARACTERS + 1), "the layout must have at most 4,096 characters, got 'xxx"),
        (["x" * 10**6], "the layout must be a name, got ['xxx"),
    ],
)
def test_what_is_no_name(raw: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^the layout must ") as caught:
        parse_name("layout", raw)
    assert str(caught.value).startswith(sentence)
    assert len(str(caught.value)) < 250


@given(st.integers(-(2**53) + 1, 2**53 - 1))
def test_a_whole_number_has_one_name(number: int) -> None:
    assert parse_name("id", number) == parse_name("id", float(number)) == str(number)
    assert parse_key("group", f"{number}.0") == str(number)


@pytest.mark.parametrize("text", ["7.00", "1.0.0", "v7.0", ".0", "7.5", "٧.0"])
def test_only_a_whole_number_loses_its_point(text: str) -> None:
    assert parse_key("id", text) == text


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_a_name_is_the_same_in_all_forms(text: str) -> None:
    nfc, nfd = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert in_nfc(nfd) == in_nfc(nfc) == nfc
    assert parse_name("id", nfd) == parse_name("id", nfc)
    assert set(forms_of(text)) == {text, nfc, nfd}


def test_words_for_nothing_are_whole_cells() -> None:
    assert [none_for_null_words(text) for text in ("NULL", "nan", "None", "N/A")] == [None] * 4
    for raw in ("NULLE", " NULL", "none", "na", 0, 7.5, ["NULL"], ""):
        assert none_for_null_words(raw) == raw


def test_the_other_forms_of_a_path() -> None:
    nfc, nfd = (
        [unicodedata.normalize(form, part) for part in ("Café", "reçu.jpg")]
        for form in ("NFC", "NFD")
    )
    paths = {f"/in/{folder}/{name}" for folder in (nfc[0], nfd[0]) for name in (nfc[1], nfd[1])}
    assert len(paths) == 4
    for path in paths:
        assert set(other_forms(path)) == paths - {path}
    assert list(other_forms("/in/cafe/recu.jpg")) == []
    assert list(other_forms("/in/ß/日本.jpg")) == []  # the same in both forms


def test_a_path_with_many_forms_has_only_some() -> None:
    forms = list(other_forms("/".join(["é"] * 40)))
    assert len(forms) == len(set(forms)) == 64
