"""Pictures of confusion."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from pipeline.plots.confusion import count_pairs, draw_confusion

NAMES = [f"$shop_{number} {{" for number in range(40)]  # nothing of a name may break a picture


@pytest.mark.parametrize(
    ("labels", "pairs", "shown", "counts"),
    [
        pytest.param(
            3, [(0, 0, 5), (1, 0, 2)], [0, 1, 2], [[5, 0, 0], [2, 0, 0], [0, 0, 0]], id="all"
        ),
        pytest.param(
            5,
            [(0, 0, 9), (1, 1, 9), (2, 3, 4), (4, 3, 1), (4, 4, 2)],
            [2, 3],
            [[0, 4, 0], [0, 0, 0], [0, 1, 20]],
            id="those with the most mistakes, and the others",
        ),
    ],
)
def test_labels_that_are_drawn(labels: int, pairs: list, shown: list[int], counts: list[list[int]]):
    ids, matrix = count_pairs(np.array(pairs), labels, max_labels=3 if labels == 3 else 2)
    assert ids.tolist() == shown
    assert matrix.tolist() == counts
    assert matrix.sum() == sum(records for _, _, records in pairs)


@pytest.mark.parametrize("labels", [1, 2, 30, 40])
def test_confusion_is_drawn(labels: int):
    pairs = np.array([(number, 0, 1 + number) for number in range(labels)])
    picture = draw_confusion(pairs, NAMES[:labels], "$lay_out")
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    assert picture.min() < 60  # something dark is on it
