"""SavedModels that take image files and do not need this package."""

import dataclasses
import json
import os
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from pipeline.augmentation.pixels import to_float32
from pipeline.config import InputConfig
from pipeline.records.files import read_file
from pipeline.records.info import DatasetInfo
from pipeline.serving.preprocess import read_image
from pipeline.tasks.base import Task, heads_of
from schemas.manifest import image_form

DESCRIPTION = "assets.extra/tillroll.json"
IMAGES = "images"


def export(task: Task, model: Any, info: DatasetInfo, directory: str | os.PathLike[str]) -> None:
    """Exports a trained model.

    The SavedModel has two signatures, both with the outputs of `task.predictions`. If "label" is
    among them, it is the name of the value, string [n], and "label_id" its id, int64 [n].

    - "serving_default" takes `image_bytes`, string [n]: JPEG or PNG files of any size. They are
      converted like those of the dataset. The EXIF orientation of PNG files and color profiles are
      ignored.
    - "images" takes `images`, float32 [n, height, width, channels] in 0…1, as the input pipeline
      makes them.

    `assets.extra/tillroll.json` holds the task and its options, the digest of the dataset and how
    its images are stored, the inputs, the vocabulary of the label, and for `read_weights` the paths
    of the variables and the vocabularies of the task's heads.

    Args:
      task: the task of the model.
      model: the Keras model, built under any strategy.
      info: the dataset on which the model was trained.
      directory: directory to write; a SavedModel that is there is replaced once the new one is
        whole.

    Raises:
      ValueError: something else than a SavedModel is there.
    """
    target = os.fspath(directory).rstrip("/")
    if tf.io.gfile.exists(target) and not tf.saved_model.contains_saved_model(target):
        raise ValueError(f"{target} exists and is not a SavedModel: choose another directory")
    config = task.inputs(info)
    module = tf.Module()
    # What is tracked is saved. Of Keras' own variables there would be copies, which alone are
    # restored where a session loads the model, as in TensorFlow Serving.
    module.weights = [variable.value for variable in model.variables]
    partial = f"{target}.partial"
    if tf.io.gfile.exists(partial):
        tf.io.gfile.rmtree(partial)
    tf.saved_model.save(module, partial, signatures=_signatures(task, model, info, config))
    tf.io.gfile.makedirs(f"{partial}/assets.extra")
    with tf.io.gfile.GFile(f"{partial}/{DESCRIPTION}", "w") as file:
        described = _describe(task, model, info, config)
        file.write(json.dumps(described, indent=1, ensure_ascii=False) + "\n")
    if tf.io.gfile.exists(target):
        tf.io.gfile.rmtree(target)
    tf.io.gfile.rename(partial, target)


def _signatures(task: Task, model: Any, info: DatasetInfo, config: InputConfig) -> dict[str, Any]:
    """Traces the two signatures of `export`."""
    vocabulary = info.vocabulary(config.label)
    shape = (config.height, config.width, config.channels)

    def predictions(images: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = dict(task.predictions(model(images, training=False)))
        if "label" in outputs:
            outputs["label_id"] = outputs["label"]
            outputs["label"] = tf.gather(tf.constant(vocabulary), outputs["label"])
        return outputs

    def from_files(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
        images = tf.map_fn(
            lambda file: read_image(file, info, config),
            image_bytes,
            fn_output_signature=tf.TensorSpec(shape, tf.uint8),
        )
        return predictions(to_float32(images))

    return {
        "serving_default": tf.function(from_files, autograph=False).get_concrete_function(
            tf.TensorSpec([None], tf.string, name="image_bytes")
        ),
        IMAGES: tf.function(predictions, autograph=False).get_concrete_function(
            tf.TensorSpec([None, *shape], tf.float32, name="images")
        ),
    }


def _describe(task: Any, model: Any, info: DatasetInfo, config: InputConfig) -> dict[str, Any]:
    weights = {id(variable) for variable in model.weights}
    categories = {head.category for head in heads_of(task, model, info).values()}
    return {
        "task": f"{type(task).__module__}:{type(task).__qualname__}",
        "options": {
            field.name: str(getattr(task, field.name)) for field in dataclasses.fields(task)
        },
        "dataset_digest": info.digest,
        # `beam_jobs.predict` prepares image files in the same way.
        "stored_images": image_form(info.manifest.build_options["image"]),
        "inputs": {
            "height": config.height,
            "width": config.width,
            "channels": config.channels,
            "fit": config.fit,
        },
        "features": config.features or ("image", "label"),
        "label": config.label,
        "vocabulary": info.vocabulary(config.label),
        # In the order in which they are saved, with null for the seeds of dropout.
        "variables": [
            variable.path if id(variable) in weights else None for variable in model.variables
        ],
        "vocabularies": {name: info.vocabulary(name) for name in sorted(categories)},
    }


def read_description(directory: str) -> dict[str, Any]:
    """Reads what `export` tells of a model.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is damaged.
    """
    path = os.path.join(directory, DESCRIPTION)
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(
            f"{directory} holds no exported model (no file {DESCRIPTION}): check the path, or "
            "write it with pipeline.serving.saved_model.export"
        )
    try:
        return dict(json.loads(read_file(path)))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): export the model anew") from error


def read_weights(
    directory: str,
) -> tuple[list[tuple[str, npt.NDArray[Any]]], dict[str, list[str]]]:
    """Reads the weights of a model that `export` wrote.

    Returns:
      The path and the values of each weight, and category to values of the task's heads.

    Raises:
      ValueError: the model does not tell its variables, or is damaged.
    """
    try:
        described = read_description(directory)
        paths, vocabularies = described["variables"], described["vocabularies"]
    except (FileNotFoundError, KeyError) as error:
        raise ValueError(
            f"{directory} does not tell the names of its variables in {DESCRIPTION}: export the "
            "model again with this version of tillroll, or give its run folder"
        ) from error
    try:
        reader = tf.train.load_checkpoint(os.path.join(directory, "variables", "variables"))
        arrays = [
            (path, reader.get_tensor(f"weights/{number}/.ATTRIBUTES/VARIABLE_VALUE"))
            for number, path in enumerate(paths)
            if path is not None
        ]
    except (tf.errors.OpError, IndexError, ValueError) as error:
        raise ValueError(f"the variables of {directory} can't be read: {error}") from error
    return arrays, vocabularies
