"""Sizes of buckets: the best of all choices, and the bucket of each record."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from pipeline.records.bucket_sizes import (
    _candidates,
    bucket_sizes,
    choose_sizes,
    count_ratios,
    filled_share,
    find_bucket,
    ratio_counts,
)
from pipeline.records.info import load_info


def counts_of(*sizes: tuple[int, int]) -> np.ndarray:
    """Records of these heights and widths, as `choose_sizes` takes them."""
    height, width = np.array(sizes, np.int64).T
    return ratio_counts(height, width)


@pytest.fixture(scope="module")
def receipts() -> np.ndarray:
    """Heights and widths like those of receipts, and a few images that are wider than high."""
    rng = np.random.default_rng(0)
    ratio = np.concatenate([rng.lognormal(0.8, 0.35, 400), rng.uniform(0.5, 1, 20)])
    return np.stack([ratio * 500, np.full(420, 500)], axis=1).astype(np.int64)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_choice_is_the_best_of_all(receipts: np.ndarray, count: int):
    counts = counts_of(*receipts)
    ratios = receipts[:, 0] / receipts[:, 1]
    candidates = _candidates(160 * 160, ratios.min(), ratios.max())
    assert len(candidates) > 12
    best = max(filled_share(counts, choice) for choice in itertools.combinations(candidates, count))
    chosen = choose_sizes(counts, count, height=160, width=160)
    assert set(chosen) <= set(candidates)
    assert len(chosen) == count
    assert filled_share(counts, chosen) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(("side", "unit"), [(512, 32), (256, 32), (128, 16)])
def test_sides_are_whole_units_of_about_the_same_area(receipts: np.ndarray, side: int, unit: int):
    shares = []
    for count in (1, 2, 4, 8):
        sizes = np.array(choose_sizes(counts_of(*receipts), count, height=side, width=side))
        assert not (sizes % unit).any()
        assert np.all(np.abs(sizes.prod(axis=1) / side**2 - 1) < 0.3)
        assert np.all(np.diff(sizes[:, 0] / sizes[:, 1]) > 0)
        shares.append(filled_share(counts_of(*receipts), list(map(tuple, sizes))))
    assert shares == sorted(shares)
    assert shares[0] > filled_share(counts_of(*receipts), [(side, side)])
    assert shares[2] > 0.8


@pytest.mark.parametrize(
    ("images", "count", "sizes"),
    [
        ([(300, 300)], 4, [(256, 256)]),  # further buckets would be empty
        ([(2000, 500), (400, 400)], 2, [(256, 256), (512, 128)]),
        ([(2000, 500), (400, 400)], 9, [(256, 256), (512, 128)]),
        ([(500, 2000)], 1, [(128, 512)]),
    ],
)
def test_chosen_sizes(images: list, count: int, sizes: list):
    assert list(choose_sizes(counts_of(*images), count, height=256, width=256)) == sizes


def test_ratios_beyond_the_highest_count_as_it():
    sizes = choose_sizes(counts_of((65535, 1)), 1, height=256, width=256)
    assert sizes[0][0] > 16 * sizes[0][1]


def test_a_record_is_in_the_bucket_of_the_nearest_ratio():
    sizes = [(100, 200), (100, 100), (400, 100)]
    # The boundaries are the ratios 0.707 and 2.
    height = np.array([10, 70, 71, 100, 199, 200, 9000])
    assert find_bucket(sizes, height, np.full(7, 100)).tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert find_bucket(sizes[:1], height, np.full(7, 100)).tolist() == [0] * 7


def test_the_bucket_is_that_of_the_least_padding(receipts: np.ndarray):
    sizes = choose_sizes(counts_of(*receipts), 5, height=256, width=256)
    factor = (receipts[:, 0] / receipts[:, 1])[:, None] / [h / w for h, w in sizes]
    filled = np.minimum(factor, 1 / factor)
    np.testing.assert_array_equal(find_bucket(sizes, *receipts.T), filled.argmax(axis=1))


def test_the_records_of_all_splits_count(directory: Path):
    info = load_info(directory)
    counts = count_ratios(info)
    assert counts.sum() == 32  # validation is empty
    assert counts[60 * 4096 // 40] == 32
    assert bucket_sizes(info, 3, height=256, width=256) == ((320, 192),)
    given = ((512, 128), (256, 256))
    assert bucket_sizes(info, given, height=1, width=1) == ((256, 256), (512, 128))
