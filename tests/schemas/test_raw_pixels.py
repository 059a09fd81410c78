"""Raw pixels at known bytes of their frames, in Examples that every reader parses."""

import numpy as np
import pytest

from schemas.example import decode_example, encode_example, find_bytes
from schemas.raw_pixels import ALIGNMENT, PIXELS_START, align_pixels, check_pixels_start
from schemas.receipt import Feature, receipt_features
from schemas.tfrecord import frame
from tests.support.dataset_factory import example

FEATURES = receipt_features()


def record(*, size: tuple[int, int] = (60, 40), layout: str = "alpha", gray: bool = False) -> bytes:
    return example(7, layout, 3, raw=True, gray=gray, labels=(), size=size)


@pytest.mark.parametrize("gray", [False, True])
@pytest.mark.parametrize("size", [(60, 40), (16, 16), (64, 64), (300, 250), (1000, 800)])
@pytest.mark.parametrize("layout_length", [1, 30, 31, 63, 64, 127])
def test_pixels_lie_where_readers_look_for_them(
    size: tuple[int, int], gray: bool, layout_length: int
):
    serialized = record(size=size, gray=gray, layout="x" * layout_length)
    framed = frame(align_pixels(serialized))
    assert len(framed) % ALIGNMENT == 0
    assert len(framed) - len(frame(serialized)) < 64 + 2 * ALIGNMENT
    values = decode_example(FEATURES, serialized)
    pixels = values["image/encoded"]
    assert framed[PIXELS_START : PIXELS_START + len(pixels)] == pixels
    assert decode_example(FEATURES, align_pixels(serialized)) == values


def test_what_is_aligned_stays_as_it_is():
    aligned = align_pixels(record())
    assert align_pixels(aligned) == aligned
    check_pixels_start(aligned)
    with pytest.raises(ValueError, match="128 expected"):
        check_pixels_start(record())


def test_every_length_is_padded():
    """The padding behind has 0 or 2 to 65 bytes: it can't have one."""
    features = [Feature(name=name, dtype="bytes", doc="") for name in ("image/encoded", "z")]
    lengths = set()
    for length in range(130):
        serialized = encode_example(features, {"image/encoded": b"pixels", "z": bytes(length)})
        framed = frame(align_pixels(serialized))
        assert len(framed) % ALIGNMENT == 0
        assert framed[PIXELS_START : PIXELS_START + 6] == b"pixels"
        lengths.add(len(framed))
    assert len(lengths) > 2


def test_an_example_with_much_before_its_pixels_is_refused():
    features = [Feature(name=name, dtype="bytes", doc="") for name in ("a", "image/encoded")]
    serialized = encode_example(features, {"a": bytes(100), "image/encoded": b"pixels"})
    with pytest.raises(ValueError, match="at most 126 expected"):
        align_pixels(serialized)
    with pytest.raises(ValueError, match="no feature image/encoded"):
        align_pixels(encode_example(features[:1], {"a": b""}))


def test_tensorflow_skips_the_padding():
    tf = pytest.importorskip("tensorflow")
    serialized = align_pixels(record())
    features = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
    features["receipt/layout"] = tf.io.FixedLenFeature([], tf.string)
    parsed = tf.io.parse_single_example(serialized, features)
    batch = tf.io.parse_example([serialized] * 2, features)
    example_proto = tf.train.Example.FromString(serialized)
    pixels = serialized[find_bytes(memoryview(serialized), "image/encoded")]
    assert parsed["image/encoded"].numpy() == pixels
    assert batch["receipt/layout"].numpy().tolist() == [b"alpha"] * 2
    assert example_proto.features.feature["image/encoded"].bytes_list.value[0] == pixels
    assert len(np.frombuffer(pixels, np.uint8)) == 60 * 40 * 3
