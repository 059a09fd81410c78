"""The list of the receipts whose layouts are the least certain."""

import pytest

from schemas.least_certain import MAX_RECEIPTS, LeastCertain, UncertainReceipt


def receipt(id_: str, similarity: float, layout: str = "cluster-00000") -> UncertainReceipt:
    return UncertainReceipt(id=id_, split="train", layout=layout, similarity=similarity)


LISTED = LeastCertain.of([receipt("ß", 0.5), receipt("a", 0.75), receipt("c", 0.25)])


def test_the_least_similar_come_first_and_equal_ones_by_id():
    more = LeastCertain.of([receipt("d", 0.5), *LISTED.receipts, receipt("b", 0.5)])
    assert [one.id for one in more.receipts] == ["c", "b", "d", "ß", "a"]
    assert LeastCertain.of([*LISTED.receipts, *LISTED.receipts]) == LISTED


def test_no_more_are_listed_than_allowed():
    many = [receipt(str(number), number / 100) for number in range(MAX_RECEIPTS + 3)]
    listed = LeastCertain.of(many[::-1])
    assert list(listed.receipts) == many[:MAX_RECEIPTS]


def test_receipts_go_by_id_and_by_layout():
    other = receipt("d", 0.1, layout="cluster-00001")
    listed = LeastCertain.of([*LISTED.receipts, other])
    left = listed.without(ids={"a"}, layouts={"cluster-00001"})
    assert [one.id for one in left.receipts] == ["c", "ß"]


def test_a_file_gives_back_what_was_written():
    assert LeastCertain.from_json(LISTED.to_json()) == LISTED
    assert LeastCertain.from_json(LeastCertain().to_json()) == LeastCertain()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        LISTED.to_json()[:-9],
        LISTED.to_json().replace('"ß"', "3"),
        LISTED.to_json().replace("0.25", '"0.25"'),
        LISTED.to_json().replace("0.25", "NaN"),
        LISTED.to_json().replace('"similarity": 0.25,', ""),
    ],
)
def test_a_damaged_file_is_named(text: str):
    with pytest.raises(ValueError, match=r"least-certain|similarity must be a number"):
        LeastCertain.from_json(text)
