"""TensorFlow Datasets: written by its own builder, read by `as_dataset`.

https://www.tensorflow.org/datasets/performances; it decodes by
`tf.io.decode_image`, which its documentation says to skip where something else is faster.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from benchmarks.peers.output import Output
from benchmarks.peers.stored import SHARDS, SPLIT, stored_images
from benchmarks.peers.tensorflow_images import decoded

_SHUFFLE_BUFFER = 1000


def prepare(data_dir: str, folder: Path) -> None:
    """TFRecord shards and what TensorFlow Datasets writes beside them."""
    examples = [
        (number, {"image": image.encoded, "label": image.label})
        for number, image in enumerate(stored_images(data_dir))
    ]
    features = {
        "image": tfds.features.Image(encoding_format="jpeg"),
        "label": tfds.features.Scalar(np.int64),
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name="receipts",
        version="1.0.0",
        data_dir=folder,
        features=tfds.features.FeaturesDict(features),
        split_datasets={SPLIT: examples},
        download_config=tfds.download.DownloadConfig(num_shards=min(SHARDS, len(examples))),
    )


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches; tf.data counts its threads itself."""
    builder = tfds.builder_from_directory(folder / "receipts" / "1.0.0")
    # Small datasets would be kept in memory, or mostly be filling the buffer.
    config = tfds.ReadConfig(try_autocache=False, repeat_filenames=True, assert_cardinality=False)

    undecoded = {"image": tfds.decode.SkipDecoding()}

    def load(values: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        return decoded(values["image"], output), values["label"]

    dataset = (
        builder.as_dataset(SPLIT, decoders=undecoded, shuffle_files=True, read_config=config)
        .shuffle(_SHUFFLE_BUFFER)
        .map(load, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(output.batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )
    return iter(dataset)
