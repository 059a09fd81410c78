"""tf.data over TFRecord files, as in TensorFlow's guides.

https://www.tensorflow.org/tutorials/load_data/tfrecord and
https://www.tensorflow.org/guide/data_performance.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.peers.output import Output
from benchmarks.peers.stored import dealt, read_manifest, storage
from benchmarks.peers.tensorflow_images import decoded, resized

_FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}
_SHUFFLE_BUFFER = 1000


def prepare(data_dir: str, folder: Path) -> None:
    """Shards of tf.train.Example; pixels as bytes where the dataset has pixels."""
    shards = dealt(data_dir)
    for number, images in enumerate(shards):
        kind = storage(read_manifest(data_dir))
        with tf.io.TFRecordWriter(str(folder / f"{kind}-{number:05}.tfrecord")) as writer:
            for image in images:
                writer.write(_example(image.encoded, image.label))


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches; tf.data counts its threads itself."""
    raw = any(folder.glob("raw-*"))

    def load(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.io.parse_single_example(serialized, _FEATURES)
        if not raw:
            return decoded(values["image"], output), values["label"]
        pixels = tf.reshape(tf.io.decode_raw(values["image"], tf.uint8), output.shape[1:])
        return resized(pixels, output), values["label"]

    dataset = (
        tf.data.Dataset.list_files(str(folder / "*.tfrecord"))
        .repeat()  # before the buffer, or small datasets would mostly be filling it
        .interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
        .shuffle(_SHUFFLE_BUFFER)
        .map(load, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(output.batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )
    return iter(dataset)


def _example(encoded: bytes, label: int) -> bytes:
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
