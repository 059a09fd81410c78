"""Pictures of sample receipts."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from pipeline.plots.samples import draw_samples

NAMES = [f"$shop_{number} {{" for number in range(40)]  # nothing of a name may break a picture


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", [1, 5])
def test_samples_are_drawn(dtype: type, channels: int, count: int):
    batch = {
        "image": np.full((count, 8, 6, channels), 255 if dtype == np.uint8 else 1, dtype),
        "label": np.arange(count),
        "total": np.full(count, 12.5, np.float32),
        "boxes": np.tile(np.float32([[0.1, 0.1, 0.5, 0.5], [0, 0, 0, 0]]), (count, 1, 1)),
    }
    predictions = {
        "label": np.zeros(count, np.int64),
        "probability": np.full(count, 0.5, np.float32),
        "total": np.full(count, 12.0, np.float32),
        "company": np.full(count, "$ é".encode()),
        "unknown": np.zeros((count, 4, 4), np.float32),
    }
    plain = draw_samples(batch, predictions, NAMES)
    masked = draw_samples(batch, {**predictions, "mask": np.ones((count, 2, 3))}, NAMES)
    assert plain.shape == masked.shape
    pink = (np.abs(masked - [231.0, 129.0, 165.0]) < 15).all(axis=-1)
    assert pink.mean() > 0.2 / 4
    assert not (np.abs(plain - [231.0, 129.0, 165.0]) < 15).all(axis=-1).any()
