"""Pairs of receipts that are one purchase, as their numbers or their images agree.

Two OCR engines, or two photos, seldom give the same transcript. So numbers may differ, but by no
more than the words beside them do: a noisy transcript has errors everywhere, whereas two purchases
at one shop differ in their time, serial number and total, and nowhere in the name of the shop.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from beam_jobs.near_duplicates.bits import count_bits
from beam_jobs.near_duplicates.candidates import (
    KIND_WORDS,
    MIN_NUMBERS,
    NO_WORD,
    Rows,
    WordArray,
    find_candidates,
)
from beam_jobs.near_duplicates.edits import OTHER_NUMBER, edit_costs
from beam_jobs.near_duplicates.perceptual_hash import differing_bits
from schemas.fingerprints import TIME_OF_DAY, Fingerprints, NumberArray, ranges

# Of 1,024 bits of the hashes of two images. On SROIE, images that were encoded again, scaled or
# darkened differ in up to 46 of them, cropped and turned ones in at least 108, and two receipts in
# at least 148.
MAX_DIFFERING_BITS = 80
# Distinct numbers that must agree, a time of day among them, before a receipt may be dropped. A
# ticket of a car park with a fixed price shows some eight, its time among them: two cars that leave
# in one minute have the same.
MIN_SURE_NUMBERS = 12
_TIME_WEIGHT = np.int8(3)  # two purchases have different times of day, whatever else they share
_TOLERANCE_OF_IMAGES = 2  # images that are nearly the same are evidence, too
_PAIRS_AT_ONCE = 1 << 14
_COMPARED_AT_ONCE = 1 << 18  # numbers of one receipt with those of another

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Pairs of receipts that are one purchase; arrays of shape [pairs].

    Attributes:
      first, second: int64, positions of the receipts.
      shared: int32, distinct numbers that both have.
      misread: int32, numbers that differ.
      more: int32, distinct numbers that only one of them has.
      bits: int32, bits in which the hashes of their images differ; -1 where numbers decide.
      sure: bool, whether the numbers are evidence enough for dropping one of them.
    """

    first: Rows
    second: Rows
    shared: IntArray
    misread: IntArray
    more: IntArray
    bits: IntArray
    sure: npt.NDArray[np.bool_]


def find_pairs(
    fingerprints: Fingerprints,
    words: WordArray,
    key: npt.NDArray[np.uint64],
    wanted: npt.NDArray[np.bool_] | None = None,
) -> Pairs:
    """Finds the receipts that are one purchase among those that share a word.

    Two receipts are one purchase by their numbers if they share at least five, which are at least
    half of the numbers of the receipt with fewer, and if the other has at most three tenths more:
    one may be cropped. The numbers that differ must look like errors of OCR, and be as rare as
    errors in the words. Some must be equal that are rare, or all.

    They are also one purchase if their images have nearly the same hash, and their numbers could be
    equal but for errors.

    Args:
      fingerprints: of n receipts.
      words: uint64 [n, 8] or [n, 16], their words.
      key: uint64 [n, 2], hashes of their ids: from the order of the receipts, nothing follows.
      wanted: bool, as the words: which to look at; None for all.
    """
    if wanted is None:
        wanted = np.ones(words.shape, bool)
    candidates, is_rare = find_candidates(words, key, wanted)
    # Once at least, so that there is something to join.
    parts = [
        _compare(
            fingerprints,
            words,
            candidates[start : start + _PAIRS_AT_ONCE],
            is_rare[start : start + _PAIRS_AT_ONCE],
        )
        for start in range(0, max(len(candidates), 1), _PAIRS_AT_ONCE)
    ]
    return Pairs(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(Pairs)
        }
    )


def _compare(
    fingerprints: Fingerprints,
    words: WordArray,
    candidates: Rows,
    is_rare: npt.NDArray[np.bool_],
) -> Pairs:
    """Returns those candidates that are one purchase; see `find_candidates`."""
    first, second = candidates.T
    images, has_image = fingerprints.images, fingerprints.has_image
    bits = np.full(len(candidates), -1, np.int32)
    compared = np.flatnonzero(has_image[first] & has_image[second])
    bits[compared] = differing_bits(images[first[compared]], images[second[compared]])
    is_near = (bits >= 0) & (bits <= MAX_DIFFERING_BITS)
    # Many receipts have a coarse feature of their images in common, and nothing else.
    is_compared = is_near | _share_number_word(words, candidates)
    first, second = candidates[is_compared].T
    bits, is_near, is_rare = bits[is_compared], is_near[is_compared], is_rare[is_compared]
    numbers = _Numbers.of(fingerprints, first, second)
    has_enough = (
        (numbers.shared >= MIN_NUMBERS)
        & (2 * numbers.shared >= numbers.compared)
        & (10 * numbers.compared >= 7 * (numbers.compared + numbers.more))
    )
    cost = numbers.cost(np.flatnonzero(has_enough | is_near))
    common, lost = _compare_words(fingerprints, first, second)
    # A number that differs costs up to 4. Without an error in the words, one digit of nine numbers
    # may be another one; with errors, about as many numbers may differ as words do. Both factors
    # are from SROIE with 2 % of wrong characters in both transcripts: precision 0.99, recall 0.95.
    allowed = numbers.compared * (160 * lost + 24 * (common + lost))
    differing = 100 * cost * (common + lost)
    is_equal = numbers.misread == 0
    by_numbers = has_enough & (differing <= allowed) & (is_rare | is_equal)
    same = by_numbers | (is_near & (differing <= _TOLERANCE_OF_IMAGES * allowed))
    sure = (
        by_numbers
        & is_equal
        & (numbers.more == 0)
        & (numbers.shared >= MIN_SURE_NUMBERS)
        & (numbers.shared_times > 0)
    )
    return Pairs(
        first=first[same],
        second=second[same],
        shared=numbers.shared[same],
        misread=numbers.misread[same],
        more=numbers.more[same],
        bits=np.where(by_numbers, np.int32(-1), bits)[same],
        sure=sure[same],
    )


def _share_number_word(words: WordArray, candidates: Rows) -> npt.NDArray[np.bool_]:
    first, second = (words[rows, :KIND_WORDS] for rows in candidates.T)
    equal = first[:, :, None] == second[:, None, :]
    return (equal & (first != NO_WORD)[:, :, None]).any(axis=(1, 2))


def _compare_words(
    fingerprints: Fingerprints, first: Rows, second: Rows
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns how many words both receipts have, and how many of either the other lacks.

    Of the two that have some alone, the one with fewer counts: the other may show more. Without
    words, as if both had one.
    """
    first_bits, second_bits = fingerprints.text_bits[first], fingerprints.text_bits[second]
    common = count_bits(first_bits & second_bits).astype(np.int64)
    lost = np.minimum(
        count_bits(first_bits & ~second_bits), count_bits(second_bits & ~first_bits)
    ).astype(np.int64)
    return np.where(common + lost == 0, 1, common), lost


@dataclass(frozen=True, kw_only=True, eq=False)
class _Numbers:
    """Numbers of pairs of receipts, compared; arrays of shape [pairs] but for the last two.

    Attributes:
      shared: int32, numbers that both have.
      shared_times: int32, times of day that both have.
      alone: int64 [pairs, 2], numbers of each receipt that the other lacks.
      values: their codes, uint32 [alone.sum()], the first receipt's of each pair before the
        second's.
    """

    shared: IntArray
    shared_times: IntArray
    alone: npt.NDArray[np.int64]
    values: NumberArray

    @classmethod
    def of(cls, fingerprints: Fingerprints, first: Rows, second: Rows) -> "_Numbers":
        """Compares the numbers of pairs of receipts."""
        both = fingerprints.take(np.stack([first, second], axis=1).ravel())
        side, values = both.receipt, both.numbers
        plain = values & np.uint32(TIME_OF_DAY - 1)
        order = np.lexsort((plain, side // 2))
        side, values, plain = side[order], values[order], plain[order]
        # A receipt has each number once, so those that come twice in a pair are shared.
        twice = (side[1:] // 2 == side[:-1] // 2) & (plain[1:] == plain[:-1])
        pair = side[1:][twice] // 2
        times = (values[1:] & values[:-1])[twice] >= TIME_OF_DAY
        is_shared = np.zeros(len(values), bool)
        is_shared[1:] |= twice
        is_shared[:-1] |= twice
        values, side = values[~is_shared], side[~is_shared]
        return cls(
            shared=np.bincount(pair, minlength=len(first)).astype(np.int32),
            shared_times=np.bincount(pair[times], minlength=len(first)).astype(np.int32),
            alone=np.bincount(side, minlength=2 * len(first)).reshape(-1, 2),
            values=values[np.argsort(side, kind="stable")],
        )

    @property
    def misread(self) -> IntArray:
        """Numbers of the receipt with fewer alone: each may be one of the other, misread."""
        return self.alone.min(axis=1).astype(np.int32)

    @property
    def more(self) -> IntArray:
        """Numbers that only one of them has."""
        return (self.alone.max(axis=1) - self.alone.min(axis=1)).astype(np.int32)

    @property
    def compared(self) -> IntArray:
        """Numbers of the receipt with fewer."""
        return self.shared + self.misread

    def cost(self, pairs: Rows) -> npt.NDArray[np.int64]:
        """Returns what speaks against given pairs, see `edit_costs`; 0 for the other pairs.

        Each number counts as much as it differs from the most similar one, and of the two receipts,
        the one with less that differs counts.
        """
        result = np.zeros(len(self.alone), np.int64)
        starts = np.cumsum(self.alone.ravel()).reshape(-1, 2) - self.alone
        best = np.full(len(self.values), OTHER_NUMBER, np.int8)
        pairs = pairs[self.alone[pairs].min(axis=1) > 0]
        for part in _parts(pairs, self.alone[pairs].prod(axis=1)):
            # Each number of the first receipt with all of the second one.
            columns = np.repeat(self.alone[part, 1], self.alone[part, 0])
            first = np.repeat(ranges(starts[part, 0], self.alone[part, 0]), columns)
            second = ranges(np.repeat(starts[part, 1], self.alone[part, 0]), columns)
            costs = edit_costs(self.values[first], self.values[second])
            np.minimum.at(best, first, costs)
            np.minimum.at(best, second, costs)
        best *= np.where(self.values >= TIME_OF_DAY, _TIME_WEIGHT, np.int8(1))
        sums = np.append(0, np.cumsum(best, dtype=np.int64))
        of_sides = sums[starts + self.alone] - sums[starts]
        result[pairs] = of_sides[pairs].min(axis=1)
        return result


def _parts(rows: Rows, sizes: npt.NDArray[np.int64]) -> Iterator[Rows]:
    """Yields rows in parts of limited size; a larger row is a part of its own."""
    part = np.cumsum(sizes) // _COMPARED_AT_ONCE
    if len(rows):
        yield from np.split(rows, np.flatnonzero(np.diff(part)) + 1)
