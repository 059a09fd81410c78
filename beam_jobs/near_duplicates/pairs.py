"""Pairs of receipts that are one purchase, found by their numbers or their images.

Candidates have a rare thing in common: two numbers that follow each other, such as a date and a
time. Of each receipt the eight such pairs with the smallest hashes are kept, so that receipts with
the same numbers keep the same ones (bottom-k MinHash, Broder 1997). These are its words. Receipts
that share a word are compared with a few neighbors only, however many they are.

Example: of 5,000 receipts of one shop all have the word "its telephone and its tax number", but two
photos of one purchase alone share the word "12:31:05 and invoice 4711".

The words of a receipt that has too few numbers are eight bands of the perceptual hash of its image,
if it has one. Most bands of an image that was encoded again or scaled are the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_jobs.near_duplicates.numbers import MIN_NUMBERS
from beam_jobs.near_duplicates.perceptual_hash import differing_bits, hash_bands
from schemas.fingerprints import Fingerprints

WORDS = 8
MIN_SHARED = 0.8  # of the numbers of the receipt that shows more of them: one may be cropped
MIN_SHARED_WORDS = 3
# Of 1,024 bits of the hashes of two images. On SROIE, images that were encoded again, scaled or
# darkened differ in up to 46 of them, cropped and turned ones in at least 108, and two receipts in
# at least 148.
MAX_DIFFERING_BITS = 80
_NEIGHBORS = 4
_PAIRS_AT_ONCE = 1 << 16
NO_WORD = np.uint64(0xFFFFFFFFFFFFFFFF)

WordArray = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Pairs of receipts that are one purchase; arrays of shape [pairs].

    Attributes:
      first, second: int64, positions of the receipts.
      shared: int32, distinct numbers that both have.
      more: int32, distinct numbers that only one of them has.
      bits: int32, bits in which the hashes of their images differ; -1 where numbers decide.
    """

    first: Rows
    second: Rows
    shared: npt.NDArray[np.int32]
    more: npt.NDArray[np.int32]
    bits: npt.NDArray[np.int32]


def receipt_words(fingerprints: Fingerprints) -> WordArray:
    """Returns the words of receipts, uint64 [n, 8], ascending.

    A receipt with fewer words has NO_WORD in the last places; so has one with fewer than five
    distinct numbers, and no hash of its image, in all of them.
    """
    words = np.full((len(fingerprints), WORDS), NO_WORD)
    receipt, values = fingerprints.receipt, fingerprints.values.astype(np.uint64)
    follows = np.flatnonzero(receipt[1:] == receipt[:-1])
    word = _mix((values[follows] << np.uint64(32)) | values[follows + 1])
    receipt, word = _distinct(receipt[follows], word)
    place = _place_in_run(receipt)
    kept = (place < WORDS) & (_distinct_counts(fingerprints)[receipt] >= MIN_NUMBERS)
    words[receipt[kept], place[kept]] = word[kept]
    has_image = fingerprints.has_image
    words[has_image] = np.sort(_mix(hash_bands(fingerprints.images[has_image])), axis=1)
    return words


def find_pairs(
    fingerprints: Fingerprints,
    words: WordArray,
    key: npt.NDArray[np.uint64],
    wanted: npt.NDArray[np.bool_] | None = None,
) -> Pairs:
    """Finds the receipts that are one purchase among those that share a word.

    Two receipts are one purchase if one has all numbers of the other, and these are at least four
    fifths of its own. If each has a number that the other lacks, they are two purchases, whatever
    else they share. Receipts with too few numbers are one purchase if their images have nearly the
    same hash.

    Args:
      fingerprints: of n receipts.
      words: uint64 [n, 8], their words.
      key: uint64 [n, 2], hashes of their ids: from the order of the receipts, nothing follows.
      wanted: bool [n, 8], the words to look at; None for all.
    """
    candidates = _candidates(words, key, wanted)
    has_image = fingerprints.has_image
    candidates = candidates[_share_words(words, candidates, has_image)]
    rows, pairs = np.unique(candidates, return_inverse=True)
    parts = list(_verified(_distinct_numbers(fingerprints.take(rows)), pairs.reshape(-1, 2)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Pairs(
        first=rows[columns[0]],
        second=rows[columns[1]],
        shared=columns[2],
        more=columns[3],
        bits=columns[4],
    )


def _candidates(
    words: WordArray, key: npt.NDArray[np.uint64], wanted: npt.NDArray[np.bool_] | None
) -> Rows:
    """Returns pairs of neighbors among the receipts with the same word, int64 [pairs, 2]."""
    has_word = words != NO_WORD
    row, place = np.nonzero(has_word if wanted is None else has_word & wanted)
    word = words[row, place]
    # Receipts with the same word are ordered by another MinHash of their words, anew for each word:
    # near-duplicates become neighbors under one word or another, in lists of any length.
    others = _mix(words[row] ^ word[:, None])
    others[(words[row] == word[:, None]) | ~has_word[row]] = NO_WORD
    order = np.lexsort((key[row, 1], key[row, 0], others.min(axis=1, initial=NO_WORD), word))
    word, row = word[order], row[order]
    found = []
    for distance in range(1, _NEIGHBORS + 1):
        at = np.flatnonzero(word[distance:] == word[:-distance])
        found.append(np.stack([row[at], row[at + distance]], axis=1))
    candidates = np.sort(np.concatenate(found))
    candidates = candidates[np.lexsort((candidates[:, 1], candidates[:, 0]))]
    new = np.append(True, (candidates[1:] != candidates[:-1]).any(axis=1))[: len(candidates)]
    return candidates[new]


def _share_words(
    words: WordArray, candidates: Rows, has_image: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Returns which candidates share three words, or all of a receipt that has fewer.

    Of images, all do: they are compared at once.
    """
    # Where the last fifth of a receipt is cropped away, six of eight words stay on average.
    counts = (words != NO_WORD).sum(axis=1)
    shared = np.zeros(len(candidates), np.int64)
    for start in range(0, len(candidates), _PAIRS_AT_ONCE):
        first, second = candidates[start : start + _PAIRS_AT_ONCE].T
        equal = words[first, :, None] == words[second, None, :]
        equal &= words[first, :, None] != NO_WORD
        shared[start : start + _PAIRS_AT_ONCE] = equal.sum(axis=(1, 2))
    enough = shared >= np.minimum(counts[candidates].min(axis=1), MIN_SHARED_WORDS)
    return enough | has_image[candidates].all(axis=1)


def _verified(
    fingerprints: Fingerprints, candidates: Rows
) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """Yields (first, second, shared, more, bits) of those candidates that are one purchase."""
    # Once at least, so that there is something to join.
    for start in range(0, max(len(candidates), 1), _PAIRS_AT_ONCE):
        part = candidates[start : start + _PAIRS_AT_ONCE].reshape(-1, 2)
        # The numbers of both receipts of each pair, sorted: those that both have come twice.
        both = fingerprints.take(part.ravel())
        pair = both.receipt // 2
        order = np.lexsort((both.values, pair))
        pair, values = pair[order], both.values[order]
        twice = (pair[1:] == pair[:-1]) & (values[1:] == values[:-1])
        shared = np.bincount(pair[1:][twice], minlength=len(part)).astype(np.int32)
        counts = both.counts.reshape(-1, 2)
        fewer, most = counts.min(axis=1), counts.max(axis=1)
        by_image = both.has_image.reshape(-1, 2)
        bits = np.where(
            by_image.all(axis=1), differing_bits(both.images[::2], both.images[1::2]), -1
        )
        enough = (shared >= MIN_NUMBERS) & (shared >= MIN_SHARED * most) & ~by_image.any(axis=1)
        same = (shared == fewer) & (enough | ((bits >= 0) & (bits <= MAX_DIFFERING_BITS)))
        yield part[same, 0], part[same, 1], shared[same], (most - shared)[same], bits[same]


def _distinct_numbers(fingerprints: Fingerprints) -> Fingerprints:
    """Returns each receipt's numbers once, ascending."""
    receipt, values = _distinct(fingerprints.receipt, fingerprints.values)
    counts = np.bincount(receipt, minlength=len(fingerprints)).astype(np.int32)
    return replace(fingerprints, counts=counts, values=values)


def _distinct_counts(fingerprints: Fingerprints) -> npt.NDArray[np.int32]:
    return _distinct_numbers(fingerprints).counts


def _distinct(receipt: Rows, value: npt.NDArray[Any]) -> tuple[Rows, npt.NDArray[Any]]:
    """Returns each value of a receipt once, ascending, one receipt after the other."""
    order = np.lexsort((value, receipt))
    receipt, value = receipt[order], value[order]
    new = np.append(True, (receipt[1:] != receipt[:-1]) | (value[1:] != value[:-1]))[: len(value)]
    return receipt[new], value[new]


def _place_in_run(values: Rows) -> Rows:
    """Returns the place of each value among the equal ones before it: 0 1 0 1 2 of 3 3 7 7 7."""
    at = np.arange(len(values))
    starts = np.append(True, values[1:] != values[:-1])[: len(values)]
    return at - np.maximum.accumulate(np.where(starts, at, 0))


def _mix(words: WordArray) -> WordArray:
    """Spreads words evenly over 64 bits, each to another one (SplitMix64, Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
