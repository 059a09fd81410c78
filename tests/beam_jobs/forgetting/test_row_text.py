"""Ids in rows that could not be parsed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.forgetting.row_text import ids_in

IDS = frozenset({"r7", "aldi/7.jpg", "é 7", "a:b=c"})


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('{"id": "r7", "customer": "Jane Doe", ', {"r7"}),
        ('{"id": "r70", "customer": "r71"', set()),
        ('{"id": "r7', {"r7"}),
        ('{"id": " r7 ", ', {"r7"}),
        ('{"id": "\\u00e9 7", "total": 1', {"é 7"}),
        ('{"id": "é 7", "total": 1', {"é 7"}),
        ("{'id': 'r7', 'image': b'\\xff'}", {"r7"}),
        ("aldi/7.jpg,aldi,3.50,", {"aldi/7.jpg"}),
        ("r7;é 7;a:b=c", {"r7", "é 7", "a:b=c"}),
        ("id=r7\ttotal=3", {"r7"}),
        ("see r7.", set()),
        ("not r7, but 17", {"r7"}),
        ("", set()),
    ],
)
def test_whole_cells_strings_and_words(source: str, named: set[str]):
    assert ids_in({"id": "row:0123456789abcdef", "source": source}, IDS) == named


def test_a_number():
    row = {"id": "row:0", "source": '{"total": 1.5, "id": 7, "x'}
    assert ids_in(row, frozenset({"7", "1", "5"})) == {"7"}


def test_an_input_with_an_id_has_no_other():
    assert ids_in({"id": "r8", "source": '{"id": "r8", "note": "r7"}'}, IDS) == frozenset()
    assert ids_in({"id": "r7", "source": ""}, IDS) == {"r7"}


@given(id_=st.text(min_size=1).filter(str.strip), is_ascii=st.booleans(), rest=st.text())
def test_a_row_of_json_that_is_cut_off_anywhere_behind_its_id(id_: str, is_ascii: bool, rest: str):
    id_ = id_.strip()
    row = json.dumps({"id": id_, "rest": rest}, ensure_ascii=is_ascii)
    end = len(json.dumps({"id": id_}, ensure_ascii=is_ascii)) - 1
    for cut in (end, end + 1, len(row) - 1):
        assert ids_in({"id": "row:0", "source": row[:cut]}, frozenset({id_})) == {id_}
