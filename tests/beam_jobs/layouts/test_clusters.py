"""Clusters of descriptors, and the nearest one of each."""

import numpy as np
import pytest

pytest.importorskip("scipy")

from beam_jobs.layouts.clusters import cluster, max_value, nearest

SIZE = 64


def groups(*sizes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Descriptors near a center for each size, int8 [n, SIZE], and the center of each."""
    rng = np.random.default_rng(seed)
    centers = rng.integers(-100, 101, (len(sizes), SIZE))
    label = np.repeat(np.arange(len(sizes)), sizes)
    noise = rng.integers(-20, 21, (len(label), SIZE))
    return (centers[label] + noise).astype(np.int8), label


def test_clusters_are_the_groups_and_the_largest_comes_first():
    descriptors, label = groups(3, 9, 1, 5)
    centroids = cluster(descriptors, max_distance=0.5)
    assert centroids.dtype == np.int8
    number, similarity = nearest(descriptors, centroids, max_distance=0.5)
    assert number.tolist() == np.array([2, 0, 3, 1])[label].tolist()
    assert (similarity > 0.9).all()


def test_clusters_do_not_depend_on_the_order():
    descriptors, _ = groups(4, 9, 2, 6)
    shuffled = descriptors[np.random.default_rng(1).permutation(len(descriptors))]
    assert cluster(shuffled, max_distance=0.5).tolist() == (
        cluster(descriptors, max_distance=0.5).tolist()
    )


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_descriptors(count: int):
    descriptors, _ = groups(1, 1)
    centroids = cluster(descriptors[:count], max_distance=0.5)
    assert len(centroids) == count
    assert np.abs(centroids).max(axis=1).tolist() == [127] * count


def test_equal_descriptors_are_one_cluster():
    descriptors = np.repeat(groups(1)[0], 5, axis=0)
    assert len(cluster(descriptors, max_distance=0.1)) == 1


def test_pieces_of_a_noisy_group_are_joined():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(2, 1024))
    label = np.repeat([0, 1], [60, 40])
    values = np.sqrt(0.12) * centers[label] + np.sqrt(0.88) * rng.normal(size=(100, 1024))
    descriptors = np.clip(np.rint(30 * values), -127, 127).astype(np.int8)
    pieces = cluster(descriptors, max_distance=0.87)
    number, _ = nearest(descriptors, pieces, max_distance=0.8)
    assert (number == label).mean() < 0.5
    joined = cluster(descriptors, max_distance=0.87, max_joined_distance=0.7)
    number, _ = nearest(descriptors, joined, max_distance=0.8)
    assert (number == label).mean() > 0.8
    alone = cluster(descriptors[:1], max_distance=0.87, max_joined_distance=0.7)
    assert len(alone) == 1
    equal = np.repeat(descriptors[:1], 5, axis=0)
    assert len(cluster(equal, max_distance=0.87, max_joined_distance=0.7)) == 1


def test_what_is_like_nothing_is_near_nothing():
    descriptors, _ = groups(1, 1)
    centroids = np.concatenate([descriptors[:1], np.zeros((1, SIZE), np.int8)])
    asked = np.concatenate([descriptors, np.zeros((1, SIZE), np.int8)])
    number, _ = nearest(asked, centroids, max_distance=0.5)
    assert number.tolist() == [0, -1, -1]
    number, similarity = nearest(asked, centroids[:0], max_distance=0.5)
    assert number.tolist() == [-1, -1, -1]
    assert similarity.tolist() == [0, 0, 0]


def test_the_distance_decides():
    left = np.array([[100, 0]], np.int8)
    right = np.array([[60, 80]], np.int8)  # cosine 0.6
    assert nearest(left, right, max_distance=0.41)[0].tolist() == [0]
    assert nearest(left, right, max_distance=0.39)[0].tolist() == [-1]


def test_the_first_of_equally_near_ones_counts():
    descriptors, _ = groups(1)
    number, _ = nearest(descriptors, np.repeat(descriptors, 3, axis=0), max_distance=0.5)
    assert number.tolist() == [0]


def test_products_are_exact():
    # float32 holds integers up to 2**24: the largest sum there can be is just below.
    largest = np.full((1, 1040), 127, np.int8)
    less_one = largest.copy()
    less_one[0, -1] = 126
    similarity = nearest(less_one, largest, max_distance=0.5)[1].item()
    product, squares = 1040 * 127**2 - 127, (1039 * 127**2 + 126**2) * (1040 * 127**2)
    assert similarity == pytest.approx(product / squares**0.5, rel=1e-15)
    assert max_value(1040) == 127
    assert max_value(2048) == 90
    larger = np.full((1, 2048), 91, np.int8)
    with pytest.raises(ValueError, match="2048 values must be within ±90, got 91"):
        nearest(larger, larger, max_distance=0.5)


def test_many_rows_go_in_parts(monkeypatch: pytest.MonkeyPatch):
    descriptors, _ = groups(5, 5, 5)
    centroids = cluster(descriptors, max_distance=0.5)
    whole = nearest(descriptors, centroids, max_distance=0.5)
    monkeypatch.setattr("beam_jobs.layouts.clusters._CELLS_AT_ONCE", 2 * len(centroids))
    parts = nearest(descriptors, centroids, max_distance=0.5)
    assert [each.tolist() for each in parts] == [each.tolist() for each in whole]
