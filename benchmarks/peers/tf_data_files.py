"""tf.data over image files, as in TensorFlow's tutorial "Load and preprocess images".

https://www.tensorflow.org/tutorials/load_data/images, less the cache of decoded images, which a
large dataset has no room for.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.peers.output import Output
from benchmarks.peers.stored import stored_images
from benchmarks.peers.tensorflow_images import decoded


def prepare(data_dir: str, folder: Path) -> None:
    """A folder for each label, a file for each image."""
    for number, image in enumerate(stored_images(data_dir)):
        path = folder / str(image.label) / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(image.encoded)


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches; tf.data counts its threads itself."""
    return iter(made(folder, output, parallel_calls=tf.data.AUTOTUNE))


def made(folder: Path, output: Output, *, parallel_calls: int | None) -> tf.data.Dataset:
    """Makes a dataset that decodes so many images at a time; None for `map` without parallelism."""
    files = tf.data.Dataset.list_files(str(folder / "*/*.jpg"), shuffle=False)

    def load(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        label = tf.strings.to_number(tf.strings.split(path, "/")[-2], tf.int64)
        return decoded(tf.io.read_file(path), output), label

    return (
        files.shuffle(files.cardinality())
        .repeat()
        .map(load, num_parallel_calls=parallel_calls)
        .batch(output.batch_size, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )
