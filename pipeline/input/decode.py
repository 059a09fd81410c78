"""Decodes stored images to uint8 images of one size."""

import os
from collections.abc import Callable, Sequence

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.input.crop import crop_windows
from pipeline.input.features import (
    ENCODED,
    HEIGHT,
    WIDTH,
    parse_features,
    stored_feature,
    stored_size,
)
from pipeline.input.fit import fit_image, fit_rectangle, rows_above
from pipeline.records.info import DatasetInfo

_JPEG_RATIOS = (1, 2, 4, 8)  # at which the decoder can shrink
_MOST_DECODES = 1024  # beyond it, cores wait at most for one image at the end of a batch
_NEXT_DECODES = 4  # per core, of the next batch: the last images of a batch don't fill all cores
# A side of 1023 pixels is as good as one of 1024. For the other number see docs/benchmarks.md.
_MIN_AREA, _MIN_SIDE = 0.98**2, 0.75


def decode_batches(
    records: tf.data.Dataset,
    seeds: tf.data.Dataset,
    info: DatasetInfo,
    config: InputConfig,
    names: Sequence[str],
    *,
    batch_size: int,
    targets: tf.data.Dataset | None = None,
) -> tf.data.Dataset:
    """Parses records and decodes their images.

    Args:
      records: serialized records, string [].
      seeds: seeds of their examples, int64 [].
      info: the dataset.
      config: options.
      names: names in `InputConfig.features` whose stored features are wanted.
      batch_size: records of a batch.
      targets: (height, width) of each image in pixels, int32 [2], the same in a batch; None where
        all have the size of the options. Images that are stored as pixels have that one.

    Returns:
      Pairs of images, uint8 [batch_size, height, width, channels], and a dict of the stored
      features of which `read_features` makes `names`.
    """
    columns = stored_columns(names, info, config)
    shape = raw_shape(info)
    if shape and not config.crop:  # stored pixels of one size are parsed and fitted in batches

        def stored_pixels(serialized: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            values = parse_features(serialized, {*columns, ENCODED}, info, config)
            images = raw_images(_pixels(values[ENCODED], batch_size, *shape), config)
            return images, {name: values[name] for name in columns}

        return records.batch(batch_size, drop_remainder=True).map(
            stored_pixels, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )

    # What is not asked for is not made.
    zipped = {"serialized": records}
    zipped |= {"seed": seeds} if config.crop else {}
    zipped |= {"target": targets} if targets is not None else {}

    def decode(record: dict[str, tf.Tensor]) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        return decode_record(**record, info=info, config=config, names=names)

    decoded = tf.data.Dataset.zip(zipped)
    calls = config.parallel_decodes or parallel_decodes(batch_size)
    images = decoded.map(decode, num_parallel_calls=calls, deterministic=True)
    return images.batch(batch_size, drop_remainder=True)


def parallel_decodes(batch_size: int) -> int:
    """Returns the number of images that are decoded at a time.

    TensorFlow fuses `map` and `batch`, and begins the next batch only if more calls are allowed
    than a batch has images; AUTOTUNE allows one per core. But each call that waits for a core holds
    the file of its image: a batch of 20,000 would hold some GB of them.
    """
    return min(batch_size, _MOST_DECODES) + _NEXT_DECODES * len(os.sched_getaffinity(0))


def decode_record(
    serialized: tf.Tensor,
    info: DatasetInfo,
    config: InputConfig,
    names: Sequence[str],
    seed: tf.Tensor | None = None,
    target: tf.Tensor | None = None,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Parses a record, string [], and decodes its image, uint8 [height, width, channels].

    See `decode_batches`. Where windows are cut out, the seed, int64 [], draws this one. The target
    is the (height, width) of the image, int32 [2]; None for that of the options.
    """
    columns = stored_columns(names, info, config)
    values = parse_features(serialized, {*columns, ENCODED, HEIGHT, WIDTH}, info, config)
    image = _image(values, seed, target, info=info, config=config)
    return image, {name: values[name] for name in columns}


def stored_columns(names: Sequence[str], info: DatasetInfo, config: InputConfig) -> set[str]:
    """Names the stored features of which these of `InputConfig.features` are made."""
    return {column for name in names for column in stored_feature(name, info, config)}


def raw_shape(info: DatasetInfo) -> tuple[int, int, int] | None:
    """Returns the shape of all stored images if they are stored as pixels, else None."""
    stored = info.manifest.build_options.get("image", {})
    if stored.get("encoding") != "raw":
        return None
    return (*stored["raw_size"], stored["channels"])


def _image(
    values: dict[str, tf.Tensor],
    seed: tf.Tensor | None,
    target: tf.Tensor | None,
    *,
    info: DatasetInfo,
    config: InputConfig,
) -> tf.Tensor:
    """Decodes the image of a parsed record, or the window that `seed` draws."""
    encoded, size = values[ENCODED], stored_size(values)
    shape = raw_shape(info)
    if not config.crop:
        if shape:
            return raw_images(_pixels(encoded, *shape), config)
        return jpeg_image(encoded, size, config, target)
    window = crop_windows(seed, size, config.crop)
    inner, before = fit_rectangle(window[2:], config, target)
    if shape:
        cut = tf.image.crop_to_bounding_box(_pixels(encoded, *shape), *tf.unstack(window))
        cut = cut[: rows_above(window[2], inner, config, target)]
        pixels = _with_channels(cut, config)
    else:
        rows = _rows_above(inner, config, target)
        pixels = decode_jpeg(encoded, window[2:], inner, config.channels, window=window, rows=rows)
    return fit_image(pixels, inner, before, config, target)


def _pixels(encoded: tf.Tensor, *shape: int) -> tf.Tensor:
    """Takes stored pixels as uint8 of this shape."""
    return tf.reshape(tf.io.decode_raw(encoded, tf.uint8), shape)


def jpeg_image(
    encoded: tf.Tensor, size: tf.Tensor, config: InputConfig, target: tf.Tensor | None = None
) -> tf.Tensor:
    """Decodes a JPEG file and fits it into the target.

    Args:
      encoded: JPEG file, string [].
      size: its (height, width) in pixels, integers [2].
      config: size and channels of the target, and `fit`.
      target: (height, width) of the target in pixels, int32 [2], where it is another one.

    Returns:
      uint8 [height, width, channels].
    """
    inner, before = fit_rectangle(size, config, target)
    rows = _rows_above(inner, config, target)
    pixels = decode_jpeg(encoded, size, inner, config.channels, rows=rows)
    return fit_image(pixels, inner, before, config, target)


def decode_jpeg(
    encoded: tf.Tensor,
    size: tf.Tensor,
    wanted: tf.Tensor,
    channels: int,
    *,
    window: tf.Tensor | None = None,
    rows: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> tf.Tensor:
    """Decodes at the smallest scale of 1/1, 1/2, 1/4 and 1/8 that is as good as a wanted size.

    The result has about as many pixels as wanted, or more, and no side is below three quarters of
    what is wanted. A side that is stretched loses less by this than the other side gains: scaled
    down from full size, it would skip rows.

    Args:
      encoded: JPEG file, string [].
      size: (height, width) of the file, or of the window, in pixels.
      wanted: (height, width) to which the result will be scaled.
      channels: 1 or 3.
      window: of `crop_windows`, to decode nothing else; None for the whole file.
      rows: tells of how many rows, at any scale, how many are wanted; None for all.
    """
    ratios = tf.constant([[ratio] for ratio in _JPEG_RATIOS[1:]], tf.float32)
    sides = tf.math.ceil(tf.cast(size, tf.float32) / ratios) / tf.cast(wanted, tf.float32)
    suffices = (tf.reduce_prod(sides, -1) >= _MIN_AREA) & (tf.reduce_min(sides, -1) >= _MIN_SIDE)
    # Whatever suffices at one ratio does so at all smaller ones: their number is the position.
    position = tf.reduce_sum(tf.cast(suffices, tf.int32))

    def decode(ratio: int) -> Callable[[], tf.Tensor]:
        if window is None and rows is None:
            return lambda: tf.io.decode_jpeg(encoded, channels=channels, ratio=ratio)

        def decode_part() -> tf.Tensor:
            whole = tf.concat([[0, 0], tf.cast(size, tf.int32)], axis=0)
            part = whole if window is None else window
            top, left, height, width = tf.unstack((part + (ratio - 1)) // ratio)
            scaled = tf.stack([top, left, rows(height) if rows else height, width])
            return tf.image.decode_and_crop_jpeg(encoded, scaled, channels, ratio)

        return decode_part

    return tf.switch_case(position, [decode(ratio) for ratio in _JPEG_RATIOS])


def _rows_above(
    inner: tf.Tensor, config: InputConfig, target: tf.Tensor | None
) -> Callable[[tf.Tensor], tf.Tensor] | None:
    """Returns `rows_above` as a function of rows; None where all are wanted."""
    if config.fit != "top":
        return None
    return lambda rows: rows_above(rows, inner, config, target)


def raw_images(pixels: tf.Tensor, config: InputConfig) -> tf.Tensor:
    """Fits pixels of one size, uint8 [..., h, w, c], into uint8 [..., height, width, channels]."""
    size = tuple(pixels.shape[-3:-1])
    pixels = _with_channels(pixels, config)
    if size == (config.height, config.width):
        return pixels
    inner, before = fit_rectangle(tf.constant(size), config)
    pixels = pixels[..., : rows_above(tf.constant(size[0]), inner, config), :, :]
    return fit_image(pixels, inner, before, config)


def _with_channels(pixels: tf.Tensor, config: InputConfig) -> tf.Tensor:
    """Converts grayscale to RGB or the other way, where they differ."""
    if pixels.shape[-1] > config.channels:
        return tf.image.rgb_to_grayscale(pixels)
    if pixels.shape[-1] < config.channels:
        return tf.repeat(pixels, config.channels, axis=-1)
    return pixels
