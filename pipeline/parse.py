"""Records to tensors; the parser is derived from the manifest's feature table."""

from collections.abc import Sequence

import tensorflow as tf

from pipeline.config import InputConfig
from schemas.receipt import Feature, id_feature

_DTYPES = {"bytes": tf.string, "string": tf.string, "int64": tf.int64, "float32": tf.float32}
_SIDES = ("ymin", "xmin", "ymax", "xmax")


def feature_spec(features: Sequence[Feature]) -> dict[str, tf.io.FixedLenFeature]:
    """Specification for `tf.io.parse_example`."""
    return {
        feature.name: tf.io.VarLenFeature(_DTYPES[feature.dtype])
        if feature.ragged
        else tf.io.FixedLenFeature([], _DTYPES[feature.dtype])
        for feature in features
    }


def parse(
    serialized: tf.Tensor, features: Sequence[Feature], config: InputConfig
) -> dict[str, tf.Tensor]:
    """One serialised record to its image and what is known of it.

    Returns:
      "image": float32 [height, width, channels] in [0, 1]; "label": int64 []; "boxes": float32
      [max_boxes, 4], (ymin, xmin, ymax, xmax) as fractions of the image, rows of 0 after the
      last; "id": string [].
    """
    values = tf.io.parse_single_example(serialized, feature_spec(features))
    pixels = tf.cond(
        values["image/format"] == "raw",
        lambda: _raw_pixels(values, config.channels),
        lambda: tf.io.decode_jpeg(values["image/encoded"], channels=config.channels),
    )
    boxes = tf.stack(
        [tf.sparse.to_dense(values[f"image/object/bbox/{side}"]) for side in _SIDES], axis=1
    )
    image, boxes = _fit(pixels, boxes, config)
    boxes = boxes[: config.max_boxes]
    return {
        "image": image,
        "label": values[id_feature(config.label)],
        "boxes": tf.pad(boxes, [[0, config.max_boxes - tf.shape(boxes)[0]], [0, 0]]),
        "id": values["image/source_id"],
    }


def _raw_pixels(values: dict[str, tf.Tensor], channels: int) -> tf.Tensor:
    shape = [values[f"image/{side}"] for side in ("height", "width", "channels")]
    pixels = tf.reshape(tf.io.decode_raw(values["image/encoded"], tf.uint8), shape)
    if channels == 3:
        return tf.cond(shape[2] == 3, lambda: pixels, lambda: tf.image.grayscale_to_rgb(pixels))
    return tf.cond(shape[2] == 1, lambda: pixels, lambda: tf.image.rgb_to_grayscale(pixels))


def _fit(pixels: tf.Tensor, boxes: tf.Tensor, config: InputConfig) -> tuple[tf.Tensor, tf.Tensor]:
    """Scales into the target size, keeping the aspect, on white padding; boxes follow."""
    target = tf.constant([config.height, config.width], tf.float32)
    size = tf.cast(tf.shape(pixels)[:2], tf.float32)
    inner = tf.maximum(tf.round(size * tf.reduce_min(target / size)), 1.0)
    inner = tf.minimum(inner, target)
    resized = tf.image.resize(pixels, tf.cast(inner, tf.int32), antialias=True)
    image = tf.clip_by_value(resized / 255.0, 0.0, 1.0)
    before = tf.floor((target - inner) / 2)
    padding = tf.cast(tf.stack([before, target - inner - before], axis=1), tf.int32)
    image = tf.pad(image, tf.concat([padding, [[0, 0]]], axis=0), constant_values=1.0)
    image.set_shape([config.height, config.width, config.channels])
    scale, shift = tf.tile(inner / target, [2]), tf.tile(before / target, [2])
    return image, boxes * scale + shift
