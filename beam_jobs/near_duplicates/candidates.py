"""Receipts that may be one purchase, as they have something rare in common.

A word of a receipt is a pair of its numbers, such as its time and its total. One of the pair is
a time of day, or among the eight numbers with the smallest hashes (bottom-k MinHash, Broder 1997),
the other has the smallest hash beside that one. So receipts that share most of their numbers share
most of their words, in whatever order they were read, also where some numbers of each were misread.
Receipts that share a word are compared with a few neighbors only, however many they are.

Example: of 5,000 receipts of one shop all have the word "its telephone and its tax number", but two
photos of one purchase alone share the word "12:31:05 and invoice 4711".

Where images are compared, eight bands of the perceptual hash of the image are words, too. Most
bands of an image that was encoded again or scaled are the same.
"""

import numpy as np
import numpy.typing as npt

from beam_jobs.near_duplicates.perceptual_hash import hash_bands
from schemas.fingerprints import TIME_OF_DAY, Fingerprints

KIND_WORDS = 8  # of a receipt, made from its numbers, and as many from its image
MIN_NUMBERS = 5  # distinct ones: two cups of coffee for the same price are two purchases
_NEIGHBORS = 4
_RARE = 16  # receipts at most that have a rare word; a shop's telephone is on thousands
NO_WORD = np.uint64(0xFFFFFFFFFFFFFFFF)

WordArray = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]


def receipt_words(fingerprints: Fingerprints) -> WordArray:
    """Returns the words of receipts, uint64 [n, 8], or [n, 16] where any has a hash of its image.

    The first eight are of its numbers, the others of its image. A receipt with fewer words has
    NO_WORD in their places; so has one with fewer than five numbers in the first eight.
    """
    words = _number_words(fingerprints)
    has_image = fingerprints.has_image
    if not has_image.any():
        return words
    of_images = np.full((len(fingerprints), KIND_WORDS), NO_WORD)
    of_images[has_image] = _mix(hash_bands(fingerprints.images[has_image]))
    return np.concatenate([words, of_images], axis=1)


def concatenate_words(parts: list[WordArray]) -> WordArray:
    """Joins the words of receipts, some of which may have no words of images."""
    width = max(part.shape[1] for part in parts)
    return np.concatenate(
        [
            np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=NO_WORD)
            for part in parts
        ]
    )


def find_candidates(
    words: WordArray, key: npt.NDArray[np.uint64], wanted: npt.NDArray[np.bool_]
) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Finds pairs of neighbors among the receipts with the same word.

    Args:
      words: uint64 [n, 8] or [n, 16], their words.
      key: uint64 [n, 2], hashes of their ids: from the order of the receipts, nothing follows.
      wanted: bool, as the words: which to look at.

    Returns:
      Positions of the receipts, int64 [pairs, 2], each pair once, and whether they share a rare
      word, bool [pairs].
    """
    kinds = [slice(start, start + KIND_WORDS) for start in range(0, words.shape[1], KIND_WORDS)]
    neighbors = [_neighbors(words[:, kind], key, wanted[:, kind]) for kind in kinds]
    pairs, is_rare = (np.concatenate(column) for column in zip(*neighbors, strict=True))
    first, second = np.sort(pairs).T
    order = np.lexsort((~is_rare, second, first))
    first, second, is_rare = first[order], second[order], is_rare[order]
    is_new = np.append(True, (first[1:] != first[:-1]) | (second[1:] != second[:-1]))[: len(first)]
    return np.stack([first, second], axis=1)[is_new], is_rare[is_new]


def _number_words(fingerprints: Fingerprints) -> WordArray:
    """Returns the words that are made from the numbers of receipts, uint64 [n, 8]."""
    words = np.full((len(fingerprints), KIND_WORDS), NO_WORD)
    rows = np.flatnonzero(fingerprints.counts >= MIN_NUMBERS)
    if not len(rows):
        return words
    some = fingerprints.take(rows)
    receipt = some.receipt
    starts = np.cumsum(some.counts, dtype=np.int64) - some.counts
    hashes = _mix((some.numbers & np.uint32(TIME_OF_DAY - 1)).astype(np.uint64))
    # Times come first: of a ticket with a fixed price, nearly all other numbers are on each ticket.
    hashes = hashes[np.lexsort((hashes, some.numbers < TIME_OF_DAY, receipt))]
    for place in range(KIND_WORDS):
        has_place = some.counts > place
        anchor = hashes[np.minimum(starts + place, len(hashes) - 1)]
        beside = _mix(hashes ^ _mix(anchor)[receipt])
        beside[hashes == anchor[receipt]] = NO_WORD
        word = np.minimum.reduceat(beside, starts)
        words[rows[has_place], place] = word[has_place]
    return words


def _neighbors(
    words: WordArray, key: npt.NDArray[np.uint64], wanted: npt.NDArray[np.bool_]
) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Returns the neighbors under each word of one kind; some come under several."""
    has_word = words != NO_WORD
    row, place = np.nonzero(has_word & wanted)
    word = words[row, place]
    # Receipts with the same word are ordered by another MinHash of their words, anew for each word:
    # near-duplicates become neighbors under one word or another, in lists of any length.
    mixed = _mix(words[row] ^ word[:, None])
    mixed[(words[row] == word[:, None]) | ~has_word[row]] = NO_WORD
    order = np.lexsort((key[row, 1], key[row, 0], mixed.min(axis=1, initial=NO_WORD), word))
    word, row = word[order], row[order]
    pairs, are_rare = [], []
    starts = np.flatnonzero(np.append(True, word[1:] != word[:-1])[: len(word)])
    lengths = np.diff(np.append(starts, len(word)))
    is_rare = np.repeat(lengths <= _RARE, lengths)
    for distance in range(1, _NEIGHBORS + 1):
        start = np.flatnonzero(word[distance:] == word[:-distance])
        pairs.append(np.stack([row[start], row[start + distance]], axis=1))
        are_rare.append(is_rare[start])
    return np.concatenate(pairs), np.concatenate(are_rare)


def _mix(words: WordArray) -> WordArray:
    """Spreads words evenly over 64 bits, each to another one (SplitMix64, Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
