"""Pairs of receipts that are one purchase, by their numbers or their images."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.near_duplicates.candidates import (
    KIND_WORDS,
    MIN_NUMBERS,
    NO_WORD,
    concatenate_words,
    find_candidates,
    receipt_words,
)
from beam_jobs.near_duplicates.pairs import MIN_SURE_NUMBERS, Pairs, find_pairs
from beam_jobs.near_duplicates.text_fingerprint import text_fingerprint
from schemas.fingerprints import Fingerprints, TextFingerprint

SHOP = [
    "99 SPEED MART SDN BHD (519537-X)",
    "LOT P.T. 2811 JALAN ANGSA TAMAN BERKELEY 41150 KLANG SELANGOR",
    "TEL 03-6151 2239 GST ID NO 000181747712",
]
TICKET = [
    "CITY PARKING SDN BHD (123456-X)",
    "12 JALAN RAJA 50480 KUALA LUMPUR",
    "TEL 03-2612345",
    "GST 000123456789",
]
ITEMS = ["rice", "flour", "butter", "cheese", "yoghurt", "bread", "apples", "onions", "coffee"]


def purchase(number: int, *, items: int = 6) -> list[str]:
    """Text of a purchase at one shop."""
    rng = np.random.default_rng(number)
    lines = [f"{rng.choice(ITEMS)} {price / 100:.2f}" for price in rng.integers(100, 9999, items)]
    day, hour, second = number % 28 + 1, rng.integers(10, 22), rng.integers(60)
    time = f"{hour}:{number % 60:02d}:{second:02d}"
    return [*SHOP, f"2018-06-{day:02d} {time} INVOICE {10**6 + 7919 * number}", *lines]


def ticket(time: str, *more: str) -> list[str]:
    """Text of a ticket of a car park with a fixed price."""
    return [*TICKET, f"DATE 12/03/2018 {time}", *more, "TOTAL RM 2.00"]


def replaced(lines: list[str], old: str, new: str) -> list[str]:
    assert any(old in line for line in lines)
    return [line.replace(old, new) for line in lines]


def misread(lines: list[str], rate: float, rng: random.Random) -> list[str]:
    """The text as an OCR engine reads it that takes some characters for others."""
    characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ.,:/-"
    return [
        "".join(rng.choice(characters) if c != " " and rng.random() < rate else c for c in line)
        for line in lines
    ]


def found(fingerprints: Fingerprints) -> Pairs:
    """Pairs of receipts, whose ids are in no order."""
    key = np.random.default_rng(0).integers(1 << 63, size=(len(fingerprints), 2))
    return find_pairs(fingerprints, receipt_words(fingerprints), key.astype(np.uint64))


def pairs_of(receipts: list[list[str]]) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Pairs of these receipts: (shared, misread, more) of each."""
    pairs = found(Fingerprints.of([text_fingerprint(lines) for lines in receipts]))
    columns = (pairs.first, pairs.second, pairs.shared, pairs.misread, pairs.more)
    return {
        (first, second): (shared, differing, more)
        for first, second, shared, differing, more in zip(
            *(column.tolist() for column in columns), strict=True
        )
    }


def is_pair(first: list[str], second: list[str]) -> bool:
    """Tells if two receipts are found to be one purchase, in a crowd of others."""
    crowd = [purchase(number) for number in range(100, 130)]
    return (0, 1) in pairs_of([first, second, *crowd])


def test_equal_numbers_are_one_purchase_and_cropped_ones_too():
    whole, other = purchase(1), purchase(2)
    assert len(text_fingerprint(whole).numbers) == 16
    assert pairs_of([whole, other, list(whole)]) == {(0, 2): (16, 0, 0)}
    assert pairs_of([whole, other, whole[:-1]]) == {(0, 2): (15, 0, 1)}
    assert pairs_of([whole, other, whole[:-5]]) == {}  # eleven of sixteen


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [line.replace(".", ",") for line in lines],
        lambda lines: [line.replace("TEL 0", "TEL RM0") for line in lines],
        lambda lines: lines[::-1],
        lambda lines: [word for line in lines for word in line.split()],
        lambda lines: [" ".join(lines)],
        lambda lines: [line.lower() for line in lines],
    ],
    ids=["decimal comma", "currency", "reverse", "words", "one line", "case"],
)
def test_what_an_engine_writes_otherwise_does_not_count(change):
    receipt = purchase(1)
    assert change(receipt) != receipt
    assert is_pair(receipt, change(receipt))


@pytest.mark.parametrize("seed", range(3))
def test_two_noisy_transcripts_are_one_purchase(seed: int):
    receipts = [purchase(number, items=12) for number in range(200)]
    rng = random.Random(seed)
    first, second = ([misread(lines, 0.015, rng) for lines in receipts] for _ in range(2))
    assert first != second
    pairs = pairs_of(first + second).keys()
    expected = {(number, 200 + number) for number in range(200)}
    assert len(pairs & expected) >= 0.95 * 200
    assert len(pairs - expected) <= 0.01 * len(pairs)


def test_another_time_or_total_is_another_purchase():
    receipt = purchase(1, items=10)
    [time] = [word for word in receipt[3].split() if ":" in word]
    assert is_pair(receipt, replaced(receipt, time, time[:-1]))  # a digit was not read
    for other in ("23:59:48", "12:31", time[:3] + "49" + time[5:]):
        assert not is_pair(receipt, replaced(receipt, time, other)), other
    invoice, price = receipt[3].split()[-1], receipt[-1].split()[-1]
    two_changed = replaced(replaced(receipt, invoice, "5550123"), price, "77.77")
    assert not is_pair(receipt, [*two_changed, "total 888.88"])


def test_errors_in_words_explain_errors_in_numbers():
    """Nothing explains why two clean transcripts differ in three prices."""
    receipt = purchase(1, items=10)
    prices = [line.split()[-1] for line in receipt[-3:]]
    other = receipt
    for price in prices:
        other = replaced(other, price, str(int(price[0]) % 9 + 1) + price[1:])
    assert not is_pair(receipt, other)
    for word in ("SPEED", "JALAN", "ANGSA", "TAMAN", "BERKELEY", "SELANGOR"):
        other = replaced(other, word, word[:2] + "?" + word[3:])
    assert is_pair(receipt, other)


def test_few_numbers_tell_nothing():
    coffee = ["COFFEE 2.50", "TOTAL 2.50", "CASH 5.00", "CHANGE 2.50", "3 pcs", "07", "12"]
    assert pairs_of([coffee, coffee]) == {}
    assert pairs_of([[*coffee, "#4711"]] * 2) == {(0, 1): (MIN_NUMBERS, 0, 0)}
    assert pairs_of([[], ["1"], coffee]) == {}
    assert pairs_of([]) == {}


def test_tickets_of_a_fixed_price_are_told_apart_by_time_and_number():
    tickets = [ticket(f"{8 + n // 30:02d}:{n % 30 * 2:02d}", f"NO {70412 + n}") for n in range(300)]
    again = [5, 77, 299]
    pairs = pairs_of(tickets + [tickets[number] for number in again]).keys()
    assert pairs == {(number, 300 + at) for at, number in enumerate(again)}


def test_pairs_are_sure_by_many_equal_numbers_and_a_time():
    def sure(*receipts: list[str]) -> list[bool]:
        pairs = found(Fingerprints.of([text_fingerprint(lines) for lines in receipts]))
        assert len(pairs.sure) == 1
        return pairs.sure.tolist()

    receipt = purchase(1, items=2)
    numbers = text_fingerprint(receipt).numbers
    assert len(numbers) == MIN_SURE_NUMBERS
    assert sure(receipt, receipt) == [True]
    assert sure(receipt, receipt[:-1]) == [False]
    [time] = [word for word in receipt[3].split() if ":" in word]
    assert sure(receipt, replaced(receipt, time, time[:-1])) == [False]
    untimed = [*replaced(receipt, time, "41"), "55.55"]
    assert len(text_fingerprint(untimed).numbers) > MIN_SURE_NUMBERS
    assert sure(untimed, untimed) == [False]
    # Two cars may leave in one minute.
    assert sure(ticket("08:15"), ticket("08:15")) == [False]
    assert sure(ticket("08:15", "NO 70412"), ticket("08:15")) == [False]


def test_second_photos_are_found_among_2000_receipts_of_one_shop():
    receipts = [purchase(number) for number in range(2000)]
    again = list(range(0, 2000, 20))
    pairs = pairs_of(receipts + [receipts[number] for number in again])
    assert pairs.keys() == {(number, 2000 + at) for at, number in enumerate(again)}


def test_a_receipt_that_was_sent_300_times_is_one_group():
    copies = [purchase(7)] * 300
    pairs = pairs_of([purchase(number) for number in range(300, 500)] + copies)
    joined = {200}
    for first, second in sorted(pairs):
        assert first >= 200
        if {first, second} & joined:
            joined |= {first, second}
    while grown := {n for pair in pairs if set(pair) & joined for n in pair} - joined:
        joined |= grown
    assert len(joined) == 300


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(10, 22).map(str), max_size=14), max_size=6))
def test_what_is_found_is_one_purchase(receipts: list[list[str]]):
    """Without words, numbers may differ by one digit in nine numbers, and at most that."""
    sets = [set(numbers) for numbers in receipts]
    for (a, b), (shared, differing, more) in pairs_of(receipts).items():
        fewer, most = sorted((sets[a], sets[b]), key=len)
        assert shared == len(fewer & most) >= MIN_NUMBERS
        assert shared + differing == len(fewer) >= 0.7 * len(most)
        assert more == len(most) - len(fewer)
        assert differing <= len(fewer) * 0.24


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(10, 25).map(str), max_size=14), max_size=8), st.randoms())
def test_pairs_do_not_depend_on_the_order_of_rows(receipts: list[list[str]], rng: random.Random):
    fingerprints = Fingerprints.of([text_fingerprint(lines) for lines in receipts])
    key = np.random.default_rng(1).integers(1 << 63, size=(len(receipts), 2)).astype(np.uint64)
    order = list(range(len(receipts)))
    rng.shuffle(order)

    def pairs(rows: list[int]) -> set[tuple[int, ...]]:
        taken = fingerprints.take(np.array(rows, np.int64))
        pairs = find_pairs(taken, receipt_words(taken), key[rows])
        return {
            (*sorted((rows[first], rows[second])), shared, differing)
            for first, second, shared, differing in zip(
                pairs.first.tolist(),
                pairs.second.tolist(),
                pairs.shared.tolist(),
                pairs.misread.tolist(),
                strict=True,
            )
        }

    assert pairs(order) == pairs(list(range(len(receipts))))


def test_candidates_of_a_rare_word():
    """A word is rare if at most 16 receipts have it; a pair comes once, whatever it shares."""
    words = np.full((40, KIND_WORDS), NO_WORD)
    words[:20, 0] = 7
    words[3:5, 1] = 8
    key = np.arange(80, dtype=np.uint64).reshape(-1, 2)
    pairs, is_rare = find_candidates(words, key, np.ones(words.shape, bool))
    assert len(np.unique(pairs, axis=0)) == len(pairs) == 19 + 18 + 17 + 16
    assert pairs[is_rare].tolist() == [[3, 4]]
    none, _ = find_candidates(words[:0], key[:0], np.ones((0, KIND_WORDS), bool))
    assert none.shape == (0, 2)


def test_words_of_images_are_joined_to_words_without():
    numbers = np.full((2, KIND_WORDS), np.uint64(5))
    both = np.full((1, 2 * KIND_WORDS), np.uint64(6))
    joined = concatenate_words([numbers, both])
    assert joined.shape == (3, 2 * KIND_WORDS)
    assert (joined[:2, KIND_WORDS:] == NO_WORD).all()
    assert (joined[2] == 6).all()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=5)), st.randoms())
def test_rows_of_numbers_can_be_taken(receipts: list[list[int]], random):
    def of(receipts: list[list[int]]) -> Fingerprints:
        return Fingerprints.of(
            [TextFingerprint(numbers=one, text_bits=len(one)) for one in receipts]
        )

    numbers = of(receipts)
    rows = [random.randrange(len(receipts)) for _ in range(4)] if receipts else []
    taken = numbers.take(np.array(rows, np.int64))
    expected = of([receipts[row] for row in rows])
    assert taken.numbers.tolist() == expected.numbers.tolist()
    assert taken.counts.tolist() == expected.counts.tolist()
    assert taken.text_bits.tolist() == expected.text_bits.tolist()
    mask = np.array([len(one) % 2 == 0 for one in receipts], bool)
    even = numbers.take(mask)
    assert even.numbers.tolist() == [v for one in receipts if len(one) % 2 == 0 for v in one]
    joined = Fingerprints.concatenate([numbers, taken])
    assert joined.numbers.tolist() == numbers.numbers.tolist() + taken.numbers.tolist()


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
    """Pairs of receipts with images: the bits that differ, or -1 where their numbers decide."""
    pairs = found(Fingerprints.of([text_fingerprint(lines) for lines in numbers], hashes))
    assert not pairs.sure[pairs.bits >= 0].any()
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


def test_numbers_that_differ_speak_against_images():
    same = np.concatenate([images(1)] * 2)
    assert image_pairs(same, [["12.50"], ["12.50"]]) == {(0, 1): 0}
    assert image_pairs(same, [["12.50"], []]) == {(0, 1): 0}
    assert image_pairs(same, [["12.50"], ["12.80"]]) == {}
    assert image_pairs(same, [purchase(1), purchase(2)]) == {}
    assert image_pairs(same, [ticket("08:15", "NO 70412"), ticket("08:17", "NO 70413")]) == {}


def test_images_are_compared_where_numbers_are_too_few_or_misread():
    same = np.concatenate([images(1)] * 2)
    # Of the same image, one engine read all lines and the other one hardly any.
    assert image_pairs(same, [purchase(1), purchase(1)[:1]]) == {(0, 1): 0}
    assert image_pairs(same, [purchase(1), []]) == {(0, 1): 0}
    assert image_pairs(same, [purchase(1), purchase(1)]) == {(0, 1): -1}
    prices = [f"{n}{n}.{n}5" for n in range(1, 5)]
    read_otherwise = [*prices[:-1], prices[-1].replace("5", "S")]
    assert image_pairs(same, [prices, read_otherwise]) == {(0, 1): 0}


def test_copies_are_found_among_5000_images_that_share_their_coarse_features():
    """Receipts of one layout do so: of eight words, two are the same on all of them."""
    hashes = images(5000)
    hashes[:, 0] = hashes[0, 0]
    again = np.arange(0, 5000, 20)
    pairs = image_pairs(np.concatenate([hashes, flipped(hashes[again], 20)]), [[]] * 5250)
    expected = {(number, 5000 + at) for at, number in enumerate(again.tolist())}
    assert pairs.keys() <= expected
    # A word of 24 bits stays the same with a probability of 0.98**24 = 0.62: in 250 pairs, 0.8 are
    # expected that have none but the common words.
    assert len(pairs) >= 247


def test_fingerprints_of_files():
    hashes = images(3)
    hashes[1] = 0
    texts = [TextFingerprint(numbers=n, text_bits=1 << 255 | 5) for n in ([1, 2], [3, 4, 5], [])]
    made = Fingerprints.of(texts, hashes)
    read = Fingerprints.of_arrays(made.arrays())
    for name in ("counts", "numbers", "text_bits", "images"):
        np.testing.assert_array_equal(getattr(read, name), getattr(made, name))
    assert read.has_image.tolist() == [True, False, True]
    without = Fingerprints.of(texts).arrays()
    assert without.keys() == {"number_counts", "numbers", "text_bits"}
    assert Fingerprints.are_in(without)
    assert not Fingerprints.are_in(("number_counts", "number_values"))  # of version 1
