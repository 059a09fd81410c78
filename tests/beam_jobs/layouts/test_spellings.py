"""Names that are spellings of one."""

import pytest

from beam_jobs.layouts.spellings import merge_spellings

NAME = "RESTORAN WAN SHENG"


@pytest.mark.parametrize(
    "other",
    [
        "RSTORAN WAN SHENG",
        "RESTORANN WAN SHENG",
        "RESTORAN WAN SHENK",
        "RESTROAN WAN SHENG",
        "ESTORAN WAN SHENG",
        "Restoran Wan-Sheng.",
        "ＲＥＳＴＯＲＡＮ WAN SHENG",
    ],
    ids=["missing", "too many", "wrong", "swapped", "first", "form", "width"],
)
def test_one_letter_and_any_form_may_differ(other: str):
    assert merge_spellings({NAME: 2, other: 1}) == {other: NAME}
    assert merge_spellings({NAME: 1, other: 2}) == {NAME: other}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("ALDI", "LIDL"),
        ("aldi", "aldis"),
        (NAME, "RSTORAN WAN SHENK"),
        ("SPEED MART 11", "SPEED MART 12"),
        ("SPEED MART 1", "SPEED MART"),
        ("SPEED MART 12", "SPEED MART 21"),
        ("++", "--"),
        ("राम", "रोम"),
        ("上海市第一百货商店", "上海市第二百货商店"),
    ],
)
def test_other_names_stay(left: str, right: str):
    assert merge_spellings({left: 2, right: 1}) == {}


def test_the_most_common_one_is_the_name_and_of_equal_ones_the_first():
    counts = {"Mr. D.I.Y.": 3, "MR D.I.Y": 3, "mr diy": 1}
    assert merge_spellings(counts) == {"Mr. D.I.Y.": "MR D.I.Y", "mr diy": "MR D.I.Y"}


def test_chains_do_not_grow():
    chain = {"abcdefgh": 9, "abcdefgx": 2, "abcdefyx": 1}
    assert merge_spellings(chain) == {"abcdefgx": "abcdefgh"}


def test_a_name_becomes_the_most_common_one_that_it_is_like():
    counts = {NAME: 100, "DESTORAN WAN SHENK": 5, "RESTORAN WAN SHENK": 1}
    assert merge_spellings(counts) == {"RESTORAN WAN SHENK": NAME}
    others = {"GIANT STORE 1": 9, "GIANT STORE A": 5, "GIANT STORE B": 1}
    assert merge_spellings(others) == {"GIANT STORE B": "GIANT STORE A"}


def test_a_name_stays_what_it_was():
    known = ["DESTORAN WAN SHENK", NAME]
    spelling = "RESTORAN WAN SHENK"
    assert merge_spellings({spelling: 1}, known) == {spelling: "DESTORAN WAN SHENK"}
    assert merge_spellings({spelling: 1}, known, {spelling: NAME}) == {spelling: NAME}
    # Unless that name is gone.
    gone = {spelling: "SOME OTHER NAME"}
    assert merge_spellings({spelling: 1}, known, gone) == {spelling: "DESTORAN WAN SHENK"}


def test_known_names_stay_however_rare():
    assert merge_spellings({"RSTORAN WAN SHENG": 9}, [NAME]) == {"RSTORAN WAN SHENG": NAME}
    known = [NAME, "RSTORAN WAN SHENG"]
    assert merge_spellings({NAME: 1, "RSTORAN WAN SHENG": 5}, known) == {}
