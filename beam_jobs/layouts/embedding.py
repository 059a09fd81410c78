"""Descriptors of receipts by a model: the embeddings that it gives of their images."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from beam_jobs.errors import BuildError
from beam_jobs.images.image import StoredImage
from beam_jobs.images.image_file import file_of
from beam_jobs.layouts.clusters import max_value
from beam_jobs.models.model import PredictionError, load
from beam_jobs.models.saved_model import SavedModel
from beam_jobs.shown import shown
from beam_jobs.sources.row import Row
from schemas.layout_centroids import Descriptors
from schemas.predictions import ModelOutput

_EMBEDDING = "embedding"
_MAX_SIZE = 4096


def embedding_output(model: SavedModel) -> ModelOutput:
    """Returns the output of a model that is its embedding.

    It is called "embedding", or it is the only vector of floats that the model gives.

    Raises:
      ValueError: there is no such output, or there are several.
    """
    vectors = [
        output
        for output in model.outputs
        if output.dtype.startswith("float")
        and len(output.shape) == 1
        and 2 <= output.shape[0] <= _MAX_SIZE
    ]
    named = [output for output in vectors if output.name == _EMBEDDING]
    if len(named or vectors) != 1:
        given = ", ".join(
            f"{output.name} {output.dtype} {['n', *output.shape]}" for output in model.outputs
        )
        raise ValueError(
            f"{model.path} gives {given}; to find layouts, a model must give one vector of 2 to "
            f"{_MAX_SIZE:,} floats for each image, or one of that name: {_EMBEDDING!r}"
        )
    return (named or vectors)[0]


def model_version(model: SavedModel) -> int:
    """Returns a number that stands for the model's files: 48 bits of their digest."""
    return int(model.sha256[:12], 16)


def describe_by_model(
    model: SavedModel, receipts: Sequence[tuple[Row, StoredImage]]
) -> Descriptors:
    """Describes receipts by the embeddings of their images, int8 [n, size].

    Raises:
      BuildError: the model can't be loaded or refuses an image, or an embedding is not finite.
    """
    output = embedding_output(model)
    try:
        outputs = load(model).predict([file_of(image) for _, image in receipts])
    except PredictionError as error:
        if len(receipts) == 1:
            raise BuildError(
                f"the model {model.path} refuses the image of {shown(receipts[0][0].id)}: {error}; "
                "leave that receipt out, or find layouts by another model"
            ) from error
        return np.concatenate([describe_by_model(model, [receipt]) for receipt in receipts])
    embeddings = outputs[output.name].astype(np.float64)
    finite = np.isfinite(embeddings).all(axis=1)
    if not finite.all():
        receipt = receipts[int(finite.argmin())][0]
        raise BuildError(
            f"the model {model.path} gives an embedding of {shown(receipt.id)} that is not finite: "
            "leave that receipt out, or find layouts by another model"
        )
    return _as_whole_numbers(embeddings)


def _as_whole_numbers(embeddings: npt.NDArray[np.float64]) -> Descriptors:
    """Scales vectors, [n, size], to the largest whole numbers that are allowed."""
    largest = np.abs(embeddings).max(axis=1, keepdims=True)
    scaled = embeddings / np.where(largest > 0, largest, 1)
    return np.rint(scaled * max_value(embeddings.shape[1])).astype(np.int8)
