"""Begins the augmentation of uint8 images in two passes, which XLA compiles for the CPU.

TensorFlow's ops pass over a batch one after the other, and a batch is larger than a processor's
cache. ImageProjectiveTransformV3 also works out the place of each pixel once per channel. Here, one
pass resamples packed pixels, whose channels lie side by side in an integer, and another one makes
numbers of them, with the changes that a table and noise can describe.

The places of pixels are rounded to 1/256 of a pixel, and resampled pixels to uint8. Between the two
there are only integers, so that an example gets the same pixels in any batch.
"""

from typing import Any

import tensorflow as tf

from pipeline.augmentation.corruption import add_noise
from pipeline.augmentation.pixels import to_uint8
from pipeline.augmentation.projective import backward_maps

MAX_CHANNELS = 4  # for which an int32 has room
_BITS = 8  # of a channel, and of the fraction of a coordinate
_ONE = 1 << _BITS
# Two channels of a packed pixel with 16 bits of room each, in which they can be multiplied by up to
# 256: of 0x44332211 these are 0x00330011 and, shifted, 0x00440022.
_TWO = 0x00FF00FF
_HALVES = 0x00800080  # 1/2 for either, to round
_WHITE = -1  # all bits set


def warp_packed(image: tf.Tensor, forward: tf.Tensor) -> tf.Tensor:
    """Moves pixels, as `projective.warp` does.

    Args:
      image: uint8 [n, height, width, 1 to 4 channels].
      forward: maps of points, float64 [n, 3, 3].

    Returns:
      Packed pixels, int32 [n, height, width]: channel c has the bits from 8 · c on.
    """
    height, width = image.shape[1:3]
    return _warp(image, backward_maps(forward, height, width))


# Both are compiled anew for each shape, which takes less than a second.
@tf.function(jit_compile=True, autograph=False)
def _warp(image: tf.Tensor, backward: tf.Tensor) -> tf.Tensor:
    count = tf.shape(image)[0]
    height, width, channels = image.shape[1:]
    across, down = _places(backward, height, width)
    # 2.75 pixels from the left side are 704: column 2, and 192 / 256 of the way to column 3.
    column, row = _shift(across, -_BITS), _shift(down, -_BITS)
    right, below = _and(across, _ONE - 1), _and(down, _ONE - 1)
    image = tf.cast(image, tf.int32)
    packed = sum(_shift(image[..., channel], _BITS * channel) for channel in range(channels))
    flat = tf.reshape(packed, [-1])
    first = (tf.range(count) * (height * width))[:, None, None]

    def at(rows: int, columns: int) -> tf.Tensor:
        y, x = row + rows, column + columns
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        # XLA would take the nearest pixel. Where functions run eagerly, the index must exist.
        place = tf.where(inside, first + y * width + x, 0)
        return tf.where(inside, tf.gather(flat, place), _WHITE)

    # The weights add up to 256, so that flat areas keep their level.
    both = _shift(right * below, -_BITS)
    corners = (
        (at(0, 0), _ONE - right - below + both),
        (at(0, 1), right - both),
        (at(1, 0), below - both),
        (at(1, 1), both),
    )
    even = sum(_and(pixel, _TWO) * weight for pixel, weight in corners) + _HALVES
    result = _and(_shift(even, -_BITS), _TWO)
    if channels > 1:
        odd = sum(_and(_shift(pixel, -_BITS), _TWO) * weight for pixel, weight in corners)
        result += _and(odd + _HALVES, ~_TWO)  # they are where they belong, 8 bits to the left
    return result


def _places(backward: tf.Tensor, height: int, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes where pixels come from, in 256ths of a pixel from the center of the first one.

    In float64, whose rounding by another order of operations no integer shows.

    Returns:
      x and y, int32 [n, height, width].
    """
    cells = tf.unstack(tf.reshape(backward, [-1, 9, 1, 1]), axis=1)
    x = tf.range(width, dtype=tf.float64)[None, None, :]
    y = tf.range(height, dtype=tf.float64)[None, :, None]
    u, v, w = (a * x + (b * y + c) for a, b, c in (cells[:3], cells[3:6], cells[6:]))
    scale = _ONE / w

    def rounded(place: tf.Tensor, length: int) -> tf.Tensor:
        # A pixel outside is as white as all beyond it. Numbers are made positive, so that cutting
        # off after adding a half rounds.
        clipped = tf.clip_by_value(place, -float(_ONE), float(_ONE * length))
        return tf.cast(clipped + (_ONE + 0.5), tf.int32) - _ONE

    return rounded(u * scale, width), rounded(v * scale, height)


@tf.function(jit_compile=True, autograph=False)
def finish(
    pixels: tf.Tensor,
    tables: tf.Tensor,
    noise: tuple[tf.Tensor, tf.Tensor] | None,
    *,
    channels: int,
    dtype: tf.DType,
) -> tf.Tensor:
    """Looks the levels of pixels up in tables, and adds noise.

    Args:
      pixels: packed, int32 [n, height, width], or uint8 [n, height, width, channels].
      tables: numbers in 0…1 for the levels of each image, float32 [n, 256].
      noise: as `corruption.Noise.draw` returns it; None for none.
      channels: channels of packed pixels.
      dtype: uint8 or float32.

    Returns:
      Images in 0…1, or of uint8, rounded, [n, height, width, channels].
    """
    count = tf.shape(pixels)[0]
    levels = tf.cast(pixels, tf.int32)
    if pixels.dtype == tf.int32:
        shifts = tf.constant([_BITS * channel for channel in range(channels)])
        levels = _and(tf.bitwise.right_shift(pixels[..., None], shifts), _ONE - 1)
    first = (tf.range(count) * _ONE)[:, None, None, None]
    image = tf.gather(tf.reshape(tables, [-1]), first + levels)
    if noise is not None:
        image = tf.clip_by_value(add_noise(image, *noise), 0.0, 1.0)
    return to_uint8(image) if dtype == tf.uint8 else image


def _and(numbers: tf.Tensor, mask: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(numbers, tf.constant(mask, tf.int32))


def _shift(numbers: tf.Tensor, bits: int) -> tf.Tensor:
    """Shifts to the left or, with a negative number of bits, to the right."""
    shift: Any = tf.bitwise.left_shift if bits > 0 else tf.bitwise.right_shift
    return shift(numbers, tf.constant(abs(bits), tf.int32))
