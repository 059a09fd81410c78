"""Features of a batch: their names, and the stored features of records that they are made of."""

from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.input.crop import crop_boxes, crop_windows
from pipeline.input.fit import fit_boxes
from pipeline.records.info import DatasetInfo
from schemas.receipt import Feature, id_feature

# Features that the input pipeline makes, of no stored feature or of more than one.
MADE_FEATURES = ("image", "weight", "step", "row", "seed")
ENCODED, HEIGHT, WIDTH = "image/encoded", "image/height", "image/width"
_SIDES = tuple(f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax"))
_DTYPES = {"bytes": tf.string, "string": tf.string, "int64": tf.int64, "float32": tf.float32}


def feature_spec(features: Sequence[Feature], names: Collection[str]) -> dict[str, Any]:
    """Makes the specification for `tf.io.parse_example` of the features with these names.

    All are dense.
    """
    return {
        feature.name: tf.io.FixedLenSequenceFeature([], _DTYPES[feature.dtype], allow_missing=True)
        if feature.ragged
        else tf.io.FixedLenFeature([], _DTYPES[feature.dtype])
        for feature in features
        if feature.name in names
    }


def parse_features(
    serialized: tf.Tensor, names: Collection[str], info: DatasetInfo, config: InputConfig
) -> dict[str, tf.Tensor]:
    """Parses a record, string [], or a batch of records, string [n].

    Args:
      serialized: the records.
      names: names of stored features.
      info: the dataset.
      config: `max_boxes`.

    Returns:
      Stored features by their names, in the shape of `serialized`. Ragged features, which have a
      value per box, get an axis of `max_boxes` behind it: further values are cut off, and missing
      ones are 0 or "".
    """
    # A batch parsed at once takes less time than its records one by one, but records whose images
    # are decoded in parallel come one by one.
    parse = tf.io.parse_example if serialized.shape.rank else tf.io.parse_single_example
    values = parse(serialized, feature_spec(info.features, names))
    for feature in info.features:
        if feature.ragged and feature.name in values:
            kept = values[feature.name][..., : config.max_boxes]
            missing = config.max_boxes - tf.shape(kept)[-1]
            ends = [[0, 0]] * serialized.shape.rank + [[0, missing]]
            filled = tf.pad(kept, ends, constant_values=tf.zeros([], kept.dtype))
            shape = [*serialized.shape, config.max_boxes]
            values[feature.name] = tf.ensure_shape(filled, shape)
    return values


def read_features(
    values: dict[str, tf.Tensor],
    info: DatasetInfo,
    config: InputConfig,
    names: Sequence[str],
    seeds: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Makes the features of a batch, except `MADE_FEATURES`.

    Args:
      values: stored features of a batch by their names, of `parse_features`.
      info: the dataset.
      config: options.
      names: names in `InputConfig.features`: "label", "boxes", "text", "id", names of labels and
        `NAME_id` of categories.
      seeds: seeds of the examples, int64 [n].

    Returns:
      The features by these names, [n, ...].
    """
    features = {name: values[stored_feature(name, info, config)[0]] for name in names}
    if "boxes" in names:
        size, boxes = stored_size(values), tf.stack([values[side] for side in _SIDES], axis=-1)
        if config.crop:
            windows = crop_windows(seeds, size, config.crop)
            size, boxes = windows[:, 2:], crop_boxes(boxes, windows, size, config.crop)
        features["boxes"] = fit_boxes(boxes, size, config)
    return features


def stored_size(values: dict[str, tf.Tensor]) -> tf.Tensor:
    """Returns the (height, width) of stored images, int64 [..., 2]."""
    return tf.stack([values[HEIGHT], values[WIDTH]], axis=-1)


def stored_feature(name: str, info: DatasetInfo, config: InputConfig) -> tuple[str, ...]:
    """Names the stored features of which one of `InputConfig.features` is made.

    Raises:
      ValueError: there is no such feature.
    """
    special = {
        "label": (id_feature(config.label),),
        "boxes": (*_SIDES, HEIGHT, WIDTH),
        "text": ("image/object/text",),
        "id": ("image/source_id",),
    }
    if name in special:
        return special[name]
    stored = [feature.name for feature in info.features]
    if f"receipt/{name}" in stored:
        return (f"receipt/{name}",)
    choices = sorted(
        other.removeprefix("receipt/") for other in stored if other.startswith("receipt/")
    )
    raise ValueError(
        f"{info.data_dir} has no feature {name!r}: choose among "
        f"{', '.join(('image', *special, 'weight', 'step', 'row', 'seed', *choices))}"
    )


def text_features(info: DatasetInfo, config: InputConfig) -> list[str]:
    """Lists those of `InputConfig.features` that are strings, which TPUs do not take."""
    strings = {feature.name for feature in info.features if feature.dtype in ("bytes", "string")}
    names = [name for name in config.features or () if name not in MADE_FEATURES]
    return [name for name in names if strings.intersection(stored_feature(name, info, config))]
