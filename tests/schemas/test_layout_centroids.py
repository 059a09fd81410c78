"""Centroids of layouts that were found."""

import numpy as np
import pytest

from schemas.layout_centroids import LayoutCentroids, cluster_name

CENTROIDS = LayoutCentroids(
    layout_from="text", descriptor_version=3, values=np.array([[1, -2], [3, 4], [5, 6]], np.int8)
)


def test_a_file_gives_back_what_was_written():
    read = LayoutCentroids.from_bytes(CENTROIDS.to_bytes())
    assert read.layout_from == "text"
    assert read.descriptor_version == 3
    assert read.values.dtype == np.int8
    assert read.values.tolist() == CENTROIDS.values.tolist()
    assert read.to_bytes() == CENTROIDS.to_bytes()


@pytest.mark.parametrize("data", [b"", b"PK", CENTROIDS.to_bytes()[:-30]])
def test_a_damaged_file_is_named(data: bytes):
    with pytest.raises(ValueError, match="not a file of centroids"):
        LayoutCentroids.from_bytes(data)


def test_names_sort_like_their_numbers():
    assert cluster_name(12) == "cluster-00012"
    assert cluster_name(123_456) == "cluster-123456"


def test_only_some_layouts_keep_their_place():
    left = CENTROIDS.only({"cluster-00002", "cluster-00000", "other"})
    assert left.values.tolist() == [[1, -2], [0, 0], [5, 6]]
    assert left.values.dtype == np.int8
