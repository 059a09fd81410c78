"""References: columns that behave like a list of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.prepare.references import LOCATION, References, encode_values, hash_words
from schemas.vocabulary import Vocabulary


@dataclass(frozen=True, order=True)
class Plain:
    """One reference as a row."""

    key: tuple[int, int]
    group: int
    chunk: int
    digest: bytes
    offset: int
    length: int
    layout: str


PLAIN = st.builds(
    Plain,
    key=st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    group=st.integers(0, 2**64 - 1),
    chunk=st.integers(0, 3),
    digest=st.binary(min_size=16, max_size=16),
    offset=st.integers(0, 2**40),
    length=st.integers(16, 2**31),
    layout=st.sampled_from(["kiosk", "bäcker", "zoo"]),
)
PARTS = st.lists(st.lists(PLAIN, max_size=5), min_size=1, max_size=4)


def columns(rows: Sequence[Plain]) -> References:
    return References(
        key=np.array([row.key for row in rows], np.uint64).reshape(-1, 2),
        group=np.array([row.group for row in rows], np.uint64),
        location=np.array(
            [(row.chunk, row.digest, row.offset, row.length) for row in rows], LOCATION
        ),
        categories={"layout": encode_values([row.layout for row in rows])},
    )


def rows_of(references: References) -> list[Plain]:
    values, codes = references.categories["layout"]
    return [
        Plain((int(key[0]), int(key[1])), int(group), *location, values[code])
        for key, group, location, code in zip(
            references.key,
            references.group,
            references.location.tolist(),
            codes,
            strict=True,
        )
    ]


@given(PARTS)
@settings(deadline=None, max_examples=60)
def test_concatenation_holds_all_rows_sorted_by_key(parts: list[list[Plain]]) -> None:
    whole = References.concatenate([columns(part) for part in parts])
    rows = [row for part in parts for row in part]
    assert len(whole) == len(rows)
    assert [row.key for row in rows_of(whole)] == sorted(row.key for row in rows)
    assert sorted(rows_of(whole)) == sorted(rows)
    assert whole.categories["layout"][0] == tuple(sorted({row.layout for row in rows}))


@given(st.lists(PLAIN, min_size=1, max_size=8), st.data())
@settings(deadline=None, max_examples=60)
def test_take_gives_rows_in_the_order_asked_for(rows: list[Plain], data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    taken = columns(rows).take(np.array(positions, np.int64))
    assert rows_of(taken) == [rows[position] for position in positions]


@given(st.lists(PLAIN, min_size=1, max_size=8), st.data())
@settings(deadline=None, max_examples=30)
def test_take_understands_a_mask(rows: list[Plain], data: st.DataObject) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    taken = columns(rows).take(np.array(mask))
    assert rows_of(taken) == [row for row, kept in zip(rows, mask, strict=True) if kept]


@given(st.lists(PLAIN, min_size=1, max_size=8))
@settings(deadline=None, max_examples=30)
def test_ordered_locations_carry_the_second_word(rows: list[Plain]) -> None:
    layout = np.arange(len(rows), dtype=np.int32)
    ordered = columns(rows).ordered_locations(layout)
    assert ordered["layout"].tolist() == layout.tolist()
    assert ordered["order"].tolist() == [row.key[1] for row in rows]
    assert ordered["location"].tolist() == [
        (row.chunk, row.digest, row.offset, row.length) for row in rows
    ]


@given(st.lists(PLAIN, min_size=1, max_size=8))
@settings(deadline=None, max_examples=30)
def test_recoding_keeps_the_values(rows: list[Plain]) -> None:
    vocabulary = Vocabulary(("kiosk", "zoo", "bäcker", "unused"))
    recoded = columns(rows).recoded({"layout": vocabulary})
    assert recoded.categories["layout"][0] == vocabulary.values
    assert rows_of(recoded) == rows


@pytest.mark.parametrize("vocabulary", [["zoo"], ["a"], ["a", "zoo"], []])
def test_recoding_needs_every_value(vocabulary: list[str]) -> None:
    row = Plain((1, 2), 0, 3, bytes(16), 0, 16, "kiosk")
    with pytest.raises(KeyError, match="kiosk"):
        columns([row]).recoded({"layout": Vocabulary(tuple(vocabulary))})


def test_recoding_does_not_need_the_values_of_records_that_were_left_out() -> None:
    rows = [Plain((at, 2), 0, 3, bytes(16), 0, 16, name) for at, name in enumerate("abc")]
    kept = columns(rows).take(np.array([True, False, True]))
    codes = kept.codes("layout", Vocabulary(("c", "a")))
    assert codes.tolist() == [1, 0]
    assert codes.dtype == np.int32


@pytest.mark.parametrize(
    ("values", "vocabulary", "codes"),
    [
        pytest.param(["b", "a", "b"], ("a", "b"), [1, 0, 1], id="sorted"),
        pytest.param(["ä", "z", "Z"], ("Z", "z", "ä"), [2, 1, 0], id="by_code_point"),
        pytest.param([], (), [], id="none"),
    ],
)
def test_encode_values(values: list[str], vocabulary: tuple[str, ...], codes: list[int]) -> None:
    found, column = encode_values(values)
    assert found == vocabulary
    assert column.tolist() == codes
    assert column.dtype == np.int32


@pytest.mark.parametrize(
    ("text", "seed", "words"),
    [
        pytest.param("", 0, (0x40BDEFD94169E6CA, 0x7076A68E75884D4E), id="empty"),
        pytest.param("receipt", 0, (0x2502514C6AACA345, 0xC2378B66C5E496E5), id="text"),
        pytest.param("receipt", 1, (0xD389A8D7B8C86014, 0xA49C27F56ABC8903), id="another_seed"),
        pytest.param(
            "Käse €", 2**63 - 1, (0xC2189EB140CCE0FE, 0x9B9F850F0BEA1711), id="largest_seed"
        ),
    ],
)
def test_hashes_are_golden(text: str, seed: int, words: tuple[int, int]) -> None:
    assert hash_words(text, seed=seed) == words
    assert hash_words(text.encode(), seed=seed) == words


def test_hashes_spread_evenly() -> None:
    words = np.array([hash_words(f"{number}.jpg") for number in range(4000)], np.uint64)
    for column in words.T:
        counts = np.bincount((column >> np.uint64(60)).astype(int), minlength=16)
        assert (abs(counts - 250) < 5 * 250**0.5).all()
