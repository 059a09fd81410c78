"""Features of batches: names, padding of ragged ones, and boxes of fitted images."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.input.features import parse_features, read_features, stored_feature
from pipeline.records.info import DatasetInfo, load_info
from schemas.example import encode_example
from schemas.receipt import Label, receipt_features


def record(number: int, boxes: list[tuple[float, ...]], texts: list[str]) -> bytes:
    """A record of 100 by 50 pixels with these (xmin, ymin, xmax, ymax)."""
    sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), zip(*boxes, strict=True), strict=False))
    return encode_example(
        receipt_features([Label(name="total", type="float")]),
        {
            "image/encoded": b"not looked at",
            "image/format": "jpeg",
            "image/height": 100,
            "image/width": 50,
            "image/channels": 3,
            "image/source_id": f"Käse-{number}",
            "image/key/sha256": "",
            "image/key/pixels": "",
            **{f"image/object/bbox/{s}": list(sides.get(s, ())) for s in ("xmin", "ymin")},
            **{f"image/object/bbox/{s}": list(sides.get(s, ())) for s in ("xmax", "ymax")},
            "image/object/text": texts,
            "receipt/group": "shop",
            "receipt/layout": "beta",
            "receipt/layout_id": 1,
            "receipt/total": 2.5 + number,
        },
    )


RECORDS = [
    record(0, [(0.0, 0.1, 0.5, 0.2), (0.2, 0.4, 1.0, 0.6)], ["SUMME", "1,50 €"]),
    record(1, [], []),
    record(2, [(0.1 * n, 0.0, 0.1 * n + 0.1, 0.5) for n in range(5)], list("abcde")),
]
NAMES = ("boxes", "text", "id", "label", "total", "group", "layout_id")


def features(info: DatasetInfo, config: InputConfig) -> dict[str, np.ndarray]:
    stored = [each for name in NAMES for each in stored_feature(name, info, config)]
    values = parse_features(tf.constant(RECORDS), stored, info, config)
    one_by_one = [parse_features(tf.constant(each), stored, info, config) for each in RECORDS]
    for name, batch_values in values.items():
        np.testing.assert_array_equal(tf.stack([each[name] for each in one_by_one]), batch_values)
    read = read_features(values, info, config, NAMES, tf.zeros(3, tf.int64))
    return {name: values.numpy() for name, values in read.items()}


def test_features(directory: Path):
    config = InputConfig(height=100, width=100, max_boxes=3)
    found = features(load_info(directory), config)
    assert [each.decode() for each in found["id"]] == ["Käse-0", "Käse-1", "Käse-2"]
    assert found["label"].tolist() == found["layout_id"].tolist() == [1, 1, 1]
    assert found["total"].tolist() == [2.5, 3.5, 4.5]
    assert found["group"].tolist() == [b"shop"] * 3
    texts = [["SUMME", "1,50 €", ""], ["", "", ""], ["a", "b", "c"]]
    assert [[each.decode() for each in row] for row in found["text"]] == texts
    assert found["boxes"].shape == (3, 3, 4)
    # 50 columns of 100 are padding, half of them on either side.
    expected = [[0.1, 0.25, 0.2, 0.5], [0.4, 0.35, 0.6, 0.75], [0, 0, 0, 0]]
    np.testing.assert_allclose(found["boxes"][0], expected, atol=1e-6)
    assert not found["boxes"][1].any()
    np.testing.assert_allclose(found["boxes"][2][:, 1], [0.25, 0.3, 0.35], atol=1e-6)


def test_boxes_of_a_stretched_image_keep_their_fractions(directory: Path):
    config = InputConfig(height=70, width=200, fit="stretch", max_boxes=8)
    found = features(load_info(directory), config)
    expected = [[0.1, 0.0, 0.2, 0.5], [0.4, 0.2, 0.6, 1.0]]
    np.testing.assert_allclose(found["boxes"][0, :2], expected, atol=1e-6)
    assert not found["boxes"][0, 2:].any()
    assert found["text"].shape == (3, 8)


def test_a_feature_that_is_not_there(directory: Path):
    sentence = (
        f"{directory} has no feature 'date': choose among image, label, boxes, text, id, weight, "
        "step, row, seed, group, layout, layout_id, total"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        stored_feature("date", load_info(directory), InputConfig())
