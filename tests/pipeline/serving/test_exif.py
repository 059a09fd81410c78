"""Orientation of JPEG files in the graph, against Pillow's."""

import io

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from pipeline.serving.exif import orientation, upright
from tests.support.pictures import encode

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8)
ORIENTATION, MAKER = 0x0112, 0x010F


def jpeg(number: int | None, byte_order: str = "<", *, comment: bytes = b"") -> bytes:
    exif = Image.Exif()
    exif.endian = byte_order
    exif[MAKER] = "a maker whose name is kept elsewhere"
    if number is not None:
        exif[ORIENTATION] = number
    return encode(Image.fromarray(PIXELS), "JPEG", exif=exif, comment=comment)


@tf.function(input_signature=[tf.TensorSpec([], tf.string)])
def turned(file: tf.Tensor) -> tf.Tensor:
    pixels = tf.io.decode_jpeg(file, dct_method="INTEGER_ACCURATE")
    return upright(pixels, orientation(file))


@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("number", range(10))
def test_turns_as_pillow_does(number: int, byte_order: str):
    file = jpeg(number, byte_order)
    assert int(orientation(file)) == (number if 1 <= number <= 8 else 1)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(file))))
    np.testing.assert_array_equal(turned(file), expected)


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"Exif\0\0", id="only the signature"),
        pytest.param(encode(Image.fromarray(PIXELS), "JPEG"), id="no EXIF"),
        pytest.param(jpeg(None), id="EXIF without it"),
        pytest.param(jpeg(6)[:60], id="cut off"),
        pytest.param(b"\xff\xd8\xff\xe1\0\0Exif\0\0II*\0" + b"\xff" * 100, id="offset beyond"),
    ],
)
def test_is_1_where_nothing_is_said(file: bytes):
    assert int(orientation(file)) == 1


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_give_a_number(junk: bytes, in_exif: bool):
    head = b"\xff\xd8\xff\xe1\0\0Exif\0\0MM" if in_exif else b""
    assert 1 <= int(orientation(head + junk)) <= 8


def test_comes_after_another_segment():
    assert int(orientation(jpeg(8, comment=b"c" * 1000))) == 8
