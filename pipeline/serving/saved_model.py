"""SavedModels that take image files, and need nothing of this package."""

import dataclasses
import json
import os
from typing import Any

import tensorflow as tf

from pipeline.augmentation.pixels import to_float32
from pipeline.config import InputConfig
from pipeline.records.info import DatasetInfo
from pipeline.serving.preprocess import read_image
from pipeline.tasks.base import Task

DESCRIPTION = "assets.extra/tillroll.json"
IMAGES = "images"


def export(task: Task, model: Any, info: DatasetInfo, directory: str | os.PathLike[str]) -> None:
    """Exports a trained model.

    The SavedModel has two signatures, both with the outputs of `task.predictions`; where "label"
    is among them it is the value's name, string [n], and "label_id" its place in the vocabulary.

    - "serving_default" takes `image_bytes`, string [n]: JPEG or PNG files of any size. They are
      made what the input pipeline would have made of them; of JPEG files, EXIF orientation counts.
      That of PNG files and colour profiles are ignored.
    - "images" takes `images`, float32 [n, height, width, channels] in 0…1, as the input pipeline
      makes them.

    `assets.extra/tillroll.json` tells the task and its options, the dataset's digest, the inputs,
    and the vocabulary.

    Args:
      task: what the model was trained for.
      model: its Keras model, built under any strategy.
      info: the dataset it was trained on.
      directory: where to write; a SavedModel that is there is replaced once the new one is whole.

    Raises:
      ValueError: something else is there.
    """
    target = os.fspath(directory).rstrip("/")
    if tf.io.gfile.exists(target) and not tf.saved_model.contains_saved_model(target):
        raise ValueError(f"{target} is there and is no SavedModel: choose another directory")
    config = task.inputs(info)
    vocabulary = info.vocabulary(config.label)

    def predictions(images: tf.Tensor) -> dict[str, tf.Tensor]:
        found = dict(task.predictions(model(images, training=False)))
        if "label" in found:
            found["label_id"] = found["label"]
            found["label"] = tf.gather(tf.constant(vocabulary), found["label"])
        return found

    def from_files(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        images = tf.map_fn(
            lambda file: read_image(file, info, config),
            image_bytes,
            fn_output_signature=tf.TensorSpec(shape, tf.uint8),
        )
        return predictions(to_float32(images))

    shape = (config.height, config.width, config.channels)
    module = tf.Module()
    module.weights = model.variables  # what is tracked is saved
    partial = f"{target}.partial"
    if tf.io.gfile.exists(partial):
        tf.io.gfile.rmtree(partial)
    tf.saved_model.save(
        module,
        partial,
        signatures={
            "serving_default": tf.function(from_files).get_concrete_function(
                tf.TensorSpec([None], tf.string, name="image_bytes")
            ),
            IMAGES: tf.function(predictions).get_concrete_function(
                tf.TensorSpec([None, *shape], tf.float32, name="images")
            ),
        },
    )
    tf.io.gfile.makedirs(f"{partial}/assets.extra")
    with tf.io.gfile.GFile(f"{partial}/{DESCRIPTION}", "w") as file:
        file.write(json.dumps(_describe(task, info, config), indent=1, ensure_ascii=False) + "\n")
    if tf.io.gfile.exists(target):
        tf.io.gfile.rmtree(target)
    tf.io.gfile.rename(partial, target)


def _describe(task: Any, info: DatasetInfo, config: InputConfig) -> dict[str, Any]:
    return {
        "task": f"{type(task).__module__}:{type(task).__qualname__}",
        "options": {each.name: str(getattr(task, each.name)) for each in dataclasses.fields(task)},
        "dataset_digest": info.digest,
        "inputs": {
            "height": config.height,
            "width": config.width,
            "channels": config.channels,
            "fit": config.fit,
        },
        "features": config.features or ("image", "label"),
        "label": config.label,
        "vocabulary": info.vocabulary(config.label),
    }
