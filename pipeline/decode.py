"""Records to images of one size, uint8, and what is known of them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.crop import crop_boxes, crop_windows
from pipeline.info import DatasetInfo
from schemas.receipt import Feature, id_feature

_DTYPES = {"bytes": tf.string, "string": tf.string, "int64": tf.int64, "float32": tf.float32}
_SIDES = tuple(f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax"))
_JPEG_RATIOS = (1, 2, 4, 8)
# A side of 1023 pixels is as good as one of 1024. The other: see docs/benchmarks.md.
_LEAST_AREA, _LEAST_SIDE = 0.98**2, 0.75
_ROUNDING = 0.01  # pixels, far above the error of float32
_WHITE = np.uint8(255)


def feature_spec(features: Sequence[Feature], names: Sequence[str]) -> dict[str, Any]:
    """Specification for `tf.io.parse_example` of the features with these names."""
    return {
        feature.name: tf.io.VarLenFeature(_DTYPES[feature.dtype])
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
    *,
    batch_size: int,
) -> tf.data.Dataset:
    """Serialised records, string [], and the seeds of their examples, int64 [], to batches.

    Returns:
      Pairs of images, uint8 [batch_size, height, width, channels], and serialised records,
      string [batch_size].
    """
    shape = _raw_shape(info)
    if shape and not config.crop:
        batches = records.batch(batch_size, drop_remainder=True)
        return batches.map(
            lambda serialized: (_stored_raw_images(serialized, shape, info, config), serialized),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
    decoded = tf.data.Dataset.zip((records, seeds) if config.crop else (records,)).map(
        lambda serialized, *seed: (_image(serialized, *seed, info=info, config=config), serialized),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    return decoded.batch(batch_size, drop_remainder=True)


def _raw_shape(info: DatasetInfo) -> tuple[int, int, int] | None:
    """Shape of all stored images, where they are stored as pixels."""
    stored = info.manifest.build_options.get("image", {})
    if stored.get("encoding") != "raw":
        return None
    return (*stored["raw_size"], stored["channels"])


def _image(
    serialized: tf.Tensor, seed: tf.Tensor = None, *, info: DatasetInfo, config: InputConfig
) -> tf.Tensor:
    """The image of a record, or a window of it."""
    names = ("image/encoded", "image/height", "image/width")
    values = tf.io.parse_single_example(serialized, feature_spec(info.features, names))
    encoded, size = values["image/encoded"], _stored_size(values)
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
    return tf.stack([values["image/height"], values["image/width"]], axis=-1)


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
    ratios = tf.constant(_JPEG_RATIOS[1:], tf.float32)[:, None]
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


def _stored_raw_images(
    serialized: tf.Tensor, shape: tuple[int, int, int], info: DatasetInfo, config: InputConfig
) -> tf.Tensor:
    values = tf.io.parse_example(serialized, feature_spec(info.features, ["image/encoded"]))
    pixels = tf.io.decode_raw(values["image/encoded"], tf.uint8, fixed_length=None)
    return raw_images(tf.reshape(pixels, [-1, *shape]), config)


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
    inner = tf.clip_by_value(tf.cast(tf.math.ceil(exact * scale - _ROUNDING), tf.int32), 1, target)
    return inner, (target - inner) // 2


def fit_image(
    pixels: tf.Tensor, inner: tf.Tensor, before: tf.Tensor, config: InputConfig
) -> tf.Tensor:
    """Scales images, uint8 [..., height, width, channels], into the target on white padding."""
    # Numbers are positive, so that cutting off after adding a half rounds; tf.round is slower.
    scaled = tf.cast(tf.image.resize(pixels, inner) + 0.5, tf.uint8)
    size = (config.height, config.width)
    if config.fit == "pad":
        # Either rows are missing or columns. tf.pad takes three times as long.
        axis = tf.cast(inner[1] < config.width, tf.int32)

        def white(missing: tf.Tensor) -> tf.Tensor:
            sides = tf.where(tf.range(2) == axis, missing, size)
            return tf.fill(tf.concat([tf.shape(pixels)[:-3], sides, [config.channels]], 0), _WHITE)

        parts = [white(before), scaled, white(tf.constant(size) - inner - before)]
        scaled = tf.concat(parts, axis - 3)
    return tf.ensure_shape(scaled, [*pixels.shape[:-3], *size, config.channels])


def normalised(pixels: tf.Tensor) -> tf.Tensor:
    """Pixels, uint8, as float32 in 0…1: times 1/255, in one pass instead of two."""
    return tf.quantization.dequantize(tf.bitcast(pixels, tf.quint8), 0.0, 1.0, mode="MIN_COMBINED")


def read_features(
    serialized: tf.Tensor,
    info: DatasetInfo,
    config: InputConfig,
    names: Sequence[str],
    seeds: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Features of a batch by their names in `InputConfig.features`, all but the image.

    Args:
      serialized: records, string [n].
      info: the dataset.
      config: options.
      names: "label", "boxes", "text", "id", names of labels and `NAME_id` of categories.
      seeds: int64 [n], of the examples.
    """
    stored = {name: stored_feature(name, info, config) for name in names}
    wanted = [each for name in names for each in stored[name]]
    if "boxes" in names:
        wanted += ["image/height", "image/width"]
    values = tf.io.parse_example(serialized, feature_spec(info.features, wanted))
    found: dict[str, tf.Tensor] = {}
    for name in names:
        columns = [_dense(values[each], config.max_boxes) for each in stored[name]]
        found[name] = columns[0] if name != "boxes" else tf.stack(columns, axis=-1)
    if "boxes" in names:
        size, boxes = _stored_size(values), found["boxes"]
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
        "boxes": _SIDES,
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


def _dense(values: Any, most: int) -> tf.Tensor:
    """Sparse values as [n, most], with what follows the last as 0 or ""; others as they are."""
    if not isinstance(values, tf.SparseTensor):
        return values
    dense = tf.sparse.to_dense(values)[:, :most]
    dense = tf.pad(dense, [[0, 0], [0, most - tf.shape(dense)[1]]], constant_values=_nothing(dense))
    return tf.ensure_shape(dense, [None, most])


def _nothing(values: tf.Tensor) -> str | int:
    return "" if values.dtype == tf.string else 0


def _fit_boxes(boxes: tf.Tensor, size: tf.Tensor, config: InputConfig) -> tf.Tensor:
    """Boxes of images of (height, width) as fractions of the target; rows of 0 stay so."""
    inner, before = (tf.cast(each, tf.float32) for each in fitted(size, config))
    target = tf.constant([config.height, config.width], tf.float32)
    scale, shift = (tf.tile(each / target, [1, 2])[:, None] for each in (inner, before))
    is_box = tf.reduce_any(boxes != 0, axis=-1, keepdims=True)
    return tf.where(is_box, boxes * scale + shift, 0.0)
