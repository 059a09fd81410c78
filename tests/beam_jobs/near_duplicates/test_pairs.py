"""Pairs of receipts that are one purchase, and the numbers by which they are found."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.near_duplicates.numbers import number_hashes
from beam_jobs.near_duplicates.pairs import MIN_NUMBERS, NO_WORD, find_pairs, receipt_words
from schemas.fingerprints import Fingerprints

SHOP = ["50480", "03-6151 2239", "GST 000483"]


def purchase(number: int, *, items: int = 6) -> list[str]:
    """Numbers of a purchase at one shop, as lines."""
    rng = np.random.default_rng(number)
    prices = [f"{cents / 100:.2f}" for cents in rng.integers(100, 9999, items).tolist()]
    return [*SHOP, f"2018-06-{number % 28 + 1:02d} 12:{number % 60:02d}:{number // 60}", *prices]


def pairs_of(receipts: list[list[str]]) -> dict[tuple[int, int], tuple[int, int]]:
    """Pairs of these receipts: (shared, more) of each."""
    numbers = Fingerprints.of([number_hashes(lines) for lines in receipts])
    key = np.random.default_rng(0).integers(1 << 63, size=(len(receipts), 2)).astype(np.uint64)
    found = find_pairs(numbers, receipt_words(numbers), key)
    columns = (found.first, found.second, found.shared, found.more)
    return {
        (first, second): (shared, more)
        for first, second, shared, more in zip(*(c.tolist() for c in columns), strict=True)
    }


def test_a_number_is_a_word_with_a_digit():
    hashes = number_hashes(["TOTAL RM 12.50", "(Thank you)", "A4711 12.50,"])
    assert len(hashes) == 3
    assert hashes[0] == hashes[2]
    assert number_hashes(["TOTAL", ""]) == []
    assert number_hashes(["\uff11\uff12:30"]) == number_hashes(["12:30"])  # full width
    assert number_hashes(["INV7"]) == number_hashes(["inv7"])


def test_a_receipt_has_at_most_256_numbers():
    assert len(number_hashes([str(number) for number in range(300)])) == 256


def test_equal_numbers_are_one_purchase_and_cropped_ones_too():
    whole, other = purchase(1), purchase(2)
    assert pairs_of([whole, other, list(whole)]) == {(0, 2): (12, 0)}
    assert pairs_of([whole, other, whole[:-1]]) == {(0, 2): (11, 1)}
    assert pairs_of([whole, other, whole[:-4]]) == {}  # eight of twelve


def test_another_total_or_time_is_another_purchase():
    one = purchase(1, items=30)
    for at in (3, -1):
        other = list(one)
        other[at] = other[at].replace("1", "9").replace("2", "8") + "7"
        assert pairs_of([one, other]) == {}


def test_few_numbers_tell_nothing():
    coffee = ["COFFEE 2.50", "TOTAL 2.50", "CASH 5.00", "CHANGE 2.50", "3 pcs", "07"]
    assert pairs_of([coffee, coffee]) == {}
    assert pairs_of([[*coffee, "#4711"]] * 2) == {(0, 1): (MIN_NUMBERS, 0)}
    assert pairs_of([[], ["1"], coffee]) == {}
    assert pairs_of([]) == {}


def test_second_photos_are_found_among_5000_receipts_of_one_shop():
    receipts = [purchase(number) for number in range(5000)]
    again = list(range(0, 5000, 20))
    found = pairs_of(receipts + [receipts[number] for number in again])
    assert found.keys() == {(number, 5000 + at) for at, number in enumerate(again)}


def test_a_receipt_that_was_sent_300_times_is_one_group():
    copies = [purchase(7)] * 300
    found = pairs_of([purchase(number) for number in range(300, 500)] + copies)
    joined = {200}
    for first, second in sorted(found):
        assert first >= 200
        if {first, second} & joined:
            joined |= {first, second}
    while grown := {n for pair in found if set(pair) & joined for n in pair} - joined:
        joined |= grown
    assert len(joined) == 300


@given(st.lists(st.lists(st.integers(0, 12).map(str), max_size=14), max_size=6))
def test_what_is_found_is_one_purchase(receipts: list[list[str]]):
    """In a short list all pairs are compared that have a word in common."""
    sets = [set(numbers) for numbers in receipts]
    numbers = Fingerprints.of([number_hashes(lines) for lines in receipts])
    words = [set(row) - {NO_WORD} for row in receipt_words(numbers).tolist()]
    for (a, b), count in pairs_of(receipts).items():
        shared = len(sets[a] & sets[b])
        assert count == (shared, abs(len(sets[a]) - len(sets[b])))
    expected = {
        (a, b)
        for a, b in combinations(range(len(receipts)), 2)
        if len(words[a] & words[b]) >= min(3, len(words[a]), len(words[b])) > 0
        and (sets[a] <= sets[b] or sets[b] <= sets[a])
        and len(sets[a] & sets[b]) >= max(MIN_NUMBERS, 0.8 * len(sets[a] | sets[b]))
    }
    if len(receipts) <= 5:
        assert pairs_of(receipts).keys() == expected


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=5)), st.randoms())
def test_rows_of_numbers_can_be_taken(receipts: list[list[int]], random):
    numbers = Fingerprints.of(receipts)
    rows = [random.randrange(len(receipts)) for _ in range(4)] if receipts else []
    taken = numbers.take(np.array(rows, np.int64))
    expected = Fingerprints.of([receipts[row] for row in rows])
    assert taken.values.tolist() == expected.values.tolist()
    assert taken.counts.tolist() == expected.counts.tolist()
    mask = np.array([len(one) % 2 == 0 for one in receipts], bool)
    even = numbers.take(mask)
    assert even.values.tolist() == [v for one in receipts if len(one) % 2 == 0 for v in one]
    joined = Fingerprints.concatenate([numbers, taken])
    assert joined.values.tolist() == numbers.values.tolist() + taken.values.tolist()


def images(count: int, *, seed: int = 0) -> np.ndarray:
    """Hashes of images that have nothing to do with each other."""
    return np.random.default_rng(seed).integers(1, 1 << 63, (count, 16)).astype(np.uint64)


def flipped(hashes: np.ndarray, bits: int) -> np.ndarray:
    """The same hashes with some bits changed, others in each."""
    result = hashes.copy()
    for row in range(len(hashes)):
        for bit in np.random.default_rng(row).choice(1024, bits, replace=False).tolist():
            result[row, bit // 64] ^= np.uint64(1 << (bit % 64))
    return result


def image_pairs(hashes: np.ndarray, numbers: list[list[str]]) -> dict[tuple[int, int], int]:
    """Pairs of receipts that are compared by their images: the bits that differ."""
    found = Fingerprints.of([number_hashes(lines) for lines in numbers], hashes)
    key = np.random.default_rng(0).integers(1 << 63, size=(len(hashes), 2)).astype(np.uint64)
    pairs = find_pairs(found, receipt_words(found), key)
    keys = zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)
    return dict(zip(keys, pairs.bits.tolist(), strict=True))


def test_images_with_nearly_the_same_hash_are_one_purchase():
    one = images(2)
    assert image_pairs(np.concatenate([one, one]), [[]] * 4) == {(0, 2): 0, (1, 3): 0}
    near = np.concatenate([one, flipped(one, 20)])
    assert image_pairs(near, [[]] * 4) == {(0, 2): 20, (1, 3): 20}
    far = np.concatenate([one, one])
    far[2:, 5:7] ^= np.uint64((1 << 41) - 1)  # 82 bits, of none of the words
    assert image_pairs(far, [[]] * 4) == {}


def test_numbers_that_both_have_decide_before_images():
    one = images(1)
    same = np.concatenate([one, one])
    assert image_pairs(same, [["12.50"], ["12.50"]]) == {(0, 1): 0}
    assert image_pairs(same, [["12.50"], []]) == {(0, 1): 0}
    assert image_pairs(same, [["12.50"], ["12.80"]]) == {}


def test_a_receipt_with_numbers_is_not_compared_by_its_image():
    hashes = np.concatenate([images(1)] * 2)
    hashes[1] = 0
    assert image_pairs(hashes, [[], purchase(1)]) == {}
    hashes[:] = 0
    assert image_pairs(hashes, [purchase(1), purchase(1)]) == {(0, 1): -1}


def test_copies_are_found_among_5000_images_that_share_their_coarse_features():
    """Receipts of one layout do so: of eight words, two are the same on all of them."""
    hashes = images(5000)
    hashes[:, 0] = hashes[0, 0]
    again = np.arange(0, 5000, 20)
    found = image_pairs(np.concatenate([hashes, flipped(hashes[again], 20)]), [[]] * 5250)
    expected = {(number, 5000 + at) for at, number in enumerate(again.tolist())}
    assert found.keys() <= expected
    # A word of 24 bits stays the same with a probability of 0.98**24 = 0.62: in 250 pairs, 0.8 are
    # expected that have none but the common words.
    assert len(found) >= 247


def test_fingerprints_of_files():
    hashes = images(3)
    hashes[1] = 0
    made = Fingerprints.of([[1, 2], [3, 4, 5, 6, 7], []], hashes)
    read = Fingerprints.of_arrays(made.arrays())
    for name in ("counts", "values", "images"):
        np.testing.assert_array_equal(getattr(read, name), getattr(made, name))
    assert read.has_image.tolist() == [True, False, True]
    assert Fingerprints.of([[1]]).arrays().keys() == {"number_counts", "number_values"}
