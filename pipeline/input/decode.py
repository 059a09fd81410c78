"""Records to images of one size, uint8, and what is known of them."""

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.input.crop import crop_boxes, crop_windows
from pipeline.records.info import DatasetInfo
from schemas.receipt import Feature, id_feature

_DTYPES = {"bytes": tf.string, "string": tf.string, "int64": tf.int64, "float32": tf.float32}
_SIDES = tuple(f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax"))
_ENCODED, _HEIGHT, _WIDTH = "image/encoded", "image/height", "image/width"
_JPEG_RATIOS = (1, 2, 4, 8)
_NEXT_DECODES = 4  # of the batch after, a core: the last images of a batch don't fill all cores
# A side of 1023 pixels is as good as one of 1024. The other: see docs/benchmarks.md.
_LEAST_AREA, _LEAST_SIDE = 0.98**2, 0.75
_ROUNDING = 0.01  # pixels, far above the error of float32
_WHITE = np.uint8(255)


def feature_spec(features: Sequence[Feature], names: Collection[str]) -> dict[str, Any]:
    """Specification for `tf.io.parse_example` of the features with these names, all dense."""
    return {
        feature.name: tf.io.FixedLenSequenceFeature([], _DTYPES[feature.dtype], allow_missing=True)
        if feature.ragged
        else tf.io.FixedLenFeature([], _DTYPES[feature.dtype])
        for feature in features
        if feature.name in names
    }


def decode_batches(
    records: tf.data.Dataset,
    seeds: tf.data.Dataset,
    info: DatasetInfo,
    config: InputConfig,
    names: Sequence[str],
    *,
    batch_size: int,
) -> tf.data.Dataset:
    """Serialised records, string [], and the seeds of their examples, int64 [], to batches.

    Returns:
      Pairs of images, uint8 [batch_size, height, width, channels], and a dict of what
      `read_features` makes these names of.
    """
    columns = {each for name in names for each in stored_feature(name, info, config)}
    shape = _raw_shape(info)
    if shape and not config.crop:

        def stored_pixels(serialized: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            values = parsed(serialized, {*columns, _ENCODED}, info, config)
            pixels = tf.io.decode_raw(values[_ENCODED], tf.uint8)
            images = raw_images(tf.reshape(pixels, [batch_size, *shape]), config)
            return images, {name: values[name] for name in columns}

        return records.batch(batch_size, drop_remainder=True).map(
            stored_pixels, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )

    def image(serialized: tf.Tensor, *seed: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        values = parsed(serialized, {*columns, _ENCODED, _HEIGHT, _WIDTH}, info, config)
        images = _image(values, *seed, info=info, config=config)
        return images, {name: values[name] for name in columns}

    decoded = tf.data.Dataset.zip((records, seeds) if config.crop else (records,))
    # TensorFlow makes one step of `map` and `batch`, which begins a batch only if so many calls are
    # allowed; AUTOTUNE allows one a core.
    calls = config.parallel_decodes or batch_size + _NEXT_DECODES * len(os.sched_getaffinity(0))
    images = decoded.map(image, num_parallel_calls=calls, deterministic=True)
    return images.batch(batch_size, drop_remainder=True)


def parsed(
    serialized: tf.Tensor, names: Collection[str], info: DatasetInfo, config: InputConfig
) -> dict[str, tf.Tensor]:
    """Stored features of a record, string [], or of a batch, string [n], by their names.

    They have its shape; ragged ones, which are of boxes, end with `max_boxes` beside it: what is
    beyond is cut off, and behind the last box all is 0 or "".
    """
    parse = tf.io.parse_example if serialized.shape.rank else tf.io.parse_single_example
    values = parse(serialized, feature_spec(info.features, names))
    for feature in info.features:
        if feature.ragged and feature.name in values:
            some = values[feature.name][..., : config.max_boxes]
            missing = config.max_boxes - tf.shape(some)[-1]
            ends = [[0, 0]] * serialized.shape.rank + [[0, missing]]
            filled = tf.pad(some, ends, constant_values=tf.zeros([], some.dtype))
            shape = [*serialized.shape, config.max_boxes]
            values[feature.name] = tf.ensure_shape(filled, shape)
    return values


def _raw_shape(info: DatasetInfo) -> tuple[int, int, int] | None:
    """Shape of all stored images, where they are stored as pixels."""
    stored = info.manifest.build_options.get("image", {})
    if stored.get("encoding") != "raw":
        return None
    return (*stored["raw_size"], stored["channels"])


def _image(
    values: dict[str, tf.Tensor],
    seed: tf.Tensor = None,
    *,
    info: DatasetInfo,
    config: InputConfig,
) -> tf.Tensor:
    """The image of a parsed record, or a window of it."""
    encoded, size = values[_ENCODED], _stored_size(values)
    if not config.crop:
        return jpeg_image(encoded, size, config)
    window = crop_windows(seed, size, config.crop)
    inner, before = fitted(window[2:], config)
    if shape := _raw_shape(info):
        pixels = tf.reshape(tf.io.decode_raw(encoded, tf.uint8), shape)
        pixels = _with_channels(tf.image.crop_to_bounding_box(pixels, *tf.unstack(window)), config)
    else:
        pixels = decode_jpeg(encoded, window[2:], inner, config.channels, window=window)
    return fit_image(pixels, inner, before, config)


def _stored_size(values: dict[str, tf.Tensor]) -> tf.Tensor:
    """(height, width) of stored images, int64 [..., 2]."""
    return tf.stack([values[_HEIGHT], values[_WIDTH]], axis=-1)


def jpeg_image(encoded: tf.Tensor, size: tf.Tensor, config: InputConfig) -> tf.Tensor:
    """A JPEG file, string [], of this (height, width) to uint8 [height, width, channels]."""
    inner, before = fitted(size, config)
    return fit_image(decode_jpeg(encoded, size, inner, config.channels), inner, before, config)


def decode_jpeg(
    encoded: tf.Tensor,
    size: tf.Tensor,
    least: tf.Tensor,
    channels: int,
    *,
    window: tf.Tensor | None = None,
) -> tf.Tensor:
    """Decodes at the smallest scale of 1/1 to 1/8 that shows as much as (height, width) can.

    It has about as many pixels, and no side is below three quarters. What a side that is stretched
    loses so is less than the other gains: scaled from full size, it would skip rows.

    Args:
      encoded: JPEG file, string [].
      size: (height, width) of the file, or of the window, in pixels.
      least: (height, width) that are wanted.
      channels: 1 or 3.
      window: of `crop_windows`, to decode no more than that.
    """
    ratios = tf.constant([[ratio] for ratio in _JPEG_RATIOS[1:]], tf.float32)
    sides = tf.math.ceil(tf.cast(size, tf.float32) / ratios) / tf.cast(least, tf.float32)
    suffices = (tf.reduce_prod(sides, -1) >= _LEAST_AREA) & (
        tf.reduce_min(sides, -1) >= _LEAST_SIDE
    )
    scale = tf.reduce_sum(tf.cast(suffices, tf.int32))

    def decode(ratio: int) -> Callable[[], tf.Tensor]:
        if window is None:
            return lambda: tf.io.decode_jpeg(encoded, channels=channels, ratio=ratio)
        scaled = (window + (ratio - 1)) // ratio
        return lambda: tf.image.decode_and_crop_jpeg(encoded, scaled, channels, ratio)

    return tf.switch_case(scale, [decode(ratio) for ratio in _JPEG_RATIOS])


def raw_images(pixels: tf.Tensor, config: InputConfig) -> tf.Tensor:
    """Pixels of one size, uint8 [n, ...], to uint8 [n, height, width, channels]."""
    size = tuple(pixels.shape[1:3])
    pixels = _with_channels(pixels, config)
    if size == (config.height, config.width):
        return pixels
    return fit_image(pixels, *fitted(tf.constant(size), config), config)


def _with_channels(pixels: tf.Tensor, config: InputConfig) -> tf.Tensor:
    """Greyscale to RGB or the other way, where they differ."""
    if pixels.shape[-1] > config.channels:
        return tf.image.rgb_to_grayscale(pixels)
    if pixels.shape[-1] < config.channels:
        return tf.repeat(pixels, config.channels, axis=-1)
    return pixels


def fitted(size: tf.Tensor, config: InputConfig) -> tuple[tf.Tensor, tf.Tensor]:
    """Where stored images come to lie in the target.

    Args:
      size: (height, width) of stored images in pixels, integers [..., 2].
      config: the target's size, and how images are fitted.

    Returns:
      (height, width) and (top, left) of the scaled image, int32 [..., 2].
    """
    target = tf.constant([config.height, config.width])
    if config.fit == "stretch":
        inner = tf.zeros_like(size, tf.int32) + target
        return inner, tf.zeros_like(inner)
    exact = tf.cast(size, tf.float32)
    scale = tf.reduce_min(tf.cast(target, tf.float32) / exact, axis=-1, keepdims=True)
    # Rounded up, as sides are where JPEG files are decoded at a scale: then nothing is resampled.
    inner = tf.cast(tf.maximum(tf.math.ceil(exact * scale - _ROUNDING), 1), tf.int32)
    return inner, (target - inner) // 2


def fit_image(
    pixels: tf.Tensor, inner: tf.Tensor, before: tf.Tensor, config: InputConfig
) -> tf.Tensor:
    """Scales images, uint8 [..., height, width, channels], into the target on white padding.

    Sides that shrink to half or less are averaged; others are interpolated bilinearly, which reads
    two neighbors of each point and would skip rows of the former.
    """

    def resized() -> tf.Tensor:
        size = tf.shape(pixels)[-3:-1]
        averaged = tf.where(size >= 2 * inner, inner, size)
        smaller = tf.cond(
            tf.reduce_all(averaged == size),
            lambda: tf.cast(pixels, tf.float32),
            lambda: tf.image.resize(pixels, averaged, tf.image.ResizeMethod.AREA),
        )
        # Numbers are positive, so that cutting off after adding a half rounds; tf.round is slower.
        return tf.cast(tf.image.resize(smaller, inner) + 0.5, tf.uint8)

    fits = tf.reduce_all(tf.shape(pixels)[-3:-1] == inner)  # most do, and three passes are spared
    scaled = tf.cond(fits, lambda: pixels, resized)
    size = (config.height, config.width)
    if config.fit == "pad":
        # Rows are missing, or columns, or nothing. tf.pad takes three times as long.
        whole = [*tf.unstack(tf.shape(pixels))[:-3], *size, config.channels]
        missing = tf.constant(size) - inner
        axis = len(whole) - 3 + tf.argmax(missing, output_type=tf.int32)

        def white(length: tf.Tensor) -> tf.Tensor:
            return tf.fill(tf.where(axis == range(len(whole)), length, whole), _WHITE)

        first = tf.reduce_max(before)
        parts = [white(first), scaled, white(tf.reduce_max(missing) - first)]
        scaled = tf.concat(parts, axis)
    return tf.ensure_shape(scaled, [*pixels.shape[:-3], *size, config.channels])


def normalize(pixels: tf.Tensor) -> tf.Tensor:
    """Pixels, uint8, as float32 in 0…1: times 1/255, in one pass instead of two."""
    return tf.quantization.dequantize(tf.bitcast(pixels, tf.quint8), 0.0, 1.0, mode="MIN_COMBINED")


def read_features(
    values: dict[str, tf.Tensor],
    info: DatasetInfo,
    config: InputConfig,
    names: Sequence[str],
    seeds: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Features of a batch by their names in `InputConfig.features`, all but the image.

    Args:
      values: stored features, of `decode_batches`.
      info: the dataset.
      config: options.
      names: "label", "boxes", "text", "id", names of labels and `NAME_id` of categories.
      seeds: int64 [n], of the examples.
    """
    found = {name: values[stored_feature(name, info, config)[0]] for name in names}
    if "boxes" in names:
        size, boxes = _stored_size(values), tf.stack([values[side] for side in _SIDES], axis=-1)
        if config.crop:
            windows = crop_windows(seeds, size, config.crop)
            size, boxes = windows[:, 2:], crop_boxes(boxes, windows, size, config.crop)
        found["boxes"] = _fit_boxes(boxes, size, config)
    return found


def stored_feature(name: str, info: DatasetInfo, config: InputConfig) -> tuple[str, ...]:
    """Which features of a record one of `InputConfig.features` is made of.

    Raises:
      ValueError: there is no such feature.
    """
    special = {
        "label": (id_feature(config.label),),
        "boxes": (*_SIDES, _HEIGHT, _WIDTH),
        "text": ("image/object/text",),
        "id": ("image/source_id",),
    }
    if name in special:
        return special[name]
    known = {each.name for each in info.features}
    if f"receipt/{name}" in known:
        return (f"receipt/{name}",)
    choices = sorted(each.removeprefix("receipt/") for each in known if each.startswith("receipt/"))
    raise ValueError(
        f"{info.data_dir} has no feature {name!r}: choose among "
        f"{', '.join(('image', *special, 'weight', 'step', 'row', 'seed', *choices))}"
    )


def _fit_boxes(boxes: tf.Tensor, size: tf.Tensor, config: InputConfig) -> tf.Tensor:
    """Boxes of images of (height, width) as fractions of the target; rows of 0 stay so."""
    inner, before = (tf.cast(each, tf.float32) for each in fitted(size, config))
    target = tf.constant([config.height, config.width], tf.float32)
    scale, shift = (tf.tile(each / target, [1, 2])[:, None] for each in (inner, before))
    is_box = tf.reduce_any(boxes != 0, axis=-1, keepdims=True)
    return tf.where(is_box, boxes * scale + shift, 0.0)
