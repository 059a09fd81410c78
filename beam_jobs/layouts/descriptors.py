"""The kinds of descriptors by which layouts are found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from beam_jobs.images.image import StoredImage, without_pixels
from beam_jobs.layouts.embedding import describe_by_model, embedding_output, model_version
from beam_jobs.layouts.image import IMAGE_SIZE, IMAGE_VERSION, image_descriptors
from beam_jobs.layouts.reading_order import reading_lines
from beam_jobs.layouts.text import SIZE, TEXT_VERSION, text_descriptors
from beam_jobs.models.saved_model import SavedModel
from beam_jobs.sources.row import Box, Row
from schemas.layout_centroids import Descriptors

LayoutFrom = Literal["column", "text", "image", "model", "none"]
ONE_LAYOUT = "all"  # of `none`
FOUND: tuple[LayoutFrom, ...] = ("text", "image", "model")
_MODEL_DISTANCE = 0.5
_AT_ONCE = 32  # receipts that are described together

# A row, and its image as the record holds it; no image where none is needed.
_Receipt = tuple[Row, StoredImage | None]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A kind of descriptors.

    Attributes:
      layout_from: its name, as the option of the build.
      size: values of a descriptor.
      version: changes when the descriptors of the same receipt do.
      max_distance: mean cosine distance up to which two clusters of receipts are of one layout.
      max_joined_distance: mean cosine distance between the centroids of such clusters up to which
        these are of one layout; None where a layout is one cluster.
      max_centroid_distance: cosine distance from a layout's centroid up to which a receipt is of
        that layout. It is smaller where descriptors are noisy, as a mean is less so.
      needs: what a receipt must have, to have a descriptor that is not zeros.
      model: the model that describes receipts, if one does.
    """

    layout_from: LayoutFrom
    size: int
    version: int
    max_distance: float
    max_centroid_distance: float
    needs: str
    max_joined_distance: float | None = None
    model: SavedModel | None = None

    @property
    def needs_images(self) -> bool:
        """Tells whether receipts are described by their images."""
        return self.layout_from != "text"

    def describe(self, receipts: Sequence[_Receipt]) -> Descriptors:
        """Describes receipts; int8 [n, size], zeros for one without what it needs.

        Raises:
          BuildError: the model can't describe one of them.
        """
        if self.layout_from == "text":
            return text_descriptors([reading_lines(row.boxes) for row, _ in receipts])
        images = [(row, image) for row, image in receipts if image]
        if self.model is None:
            return image_descriptors(image.open() for _, image in images)
        return describe_by_model(self.model, images)


BY_TEXT = Method(
    layout_from="text",
    size=SIZE,
    version=TEXT_VERSION,
    max_distance=0.35,
    max_centroid_distance=0.35,
    needs="boxes with text",
)
BY_IMAGE = Method(
    layout_from="image",
    size=IMAGE_SIZE,
    version=IMAGE_VERSION,
    max_distance=0.9,
    max_joined_distance=0.7,
    max_centroid_distance=0.8,
    needs="print in its image",
)


def find_method(
    layout_from: LayoutFrom, model: SavedModel | None = None, distance: float | None = None
) -> Method | None:
    """Returns the way in which layouts are found; None if they are not found by descriptors.

    Args:
      layout_from: where layouts come from.
      model: the model, where a model describes receipts.
      distance: the distance up to which receipts are of one layout, for a model; None for 0.5.

    Raises:
      ValueError: the model gives no embedding.
    """
    if layout_from == "model":
        if model is None:
            raise ValueError("layout_from is model: give layout_model, too")
        limit = _MODEL_DISTANCE if distance is None else distance
        return Method(
            layout_from="model",
            size=embedding_output(model).shape[0],
            version=model_version(model),
            max_distance=limit,
            max_centroid_distance=limit,
            needs="an embedding that is not zeros",
            model=model,
        )
    return {"text": BY_TEXT, "image": BY_IMAGE}.get(layout_from)


class Describer:
    """Describes receipts, some at a time; nothing where layouts are not found by descriptors."""

    def __init__(self, method: Method | None) -> None:
        self._method = method
        self._waiting: list[_Receipt] = []
        self._parts = [np.zeros((0, method.size if method else 0), np.int8)]

    def add(self, row: Row, image: StoredImage | None = None) -> None:
        """Adds a receipt; a dry run has no image, and takes its boxes to be upright."""
        if self._method:
            if image and self._method.needs_images:
                # Without its pixels, which are larger than what is stored.
                self._waiting.append((row, without_pixels(image)))
            else:
                boxes = _as_stored(image.boxes) if image else row.boxes
                self._waiting.append((replace(row, boxes=boxes), None))
            if len(self._waiting) == _AT_ONCE:
                self._describe(self._method)

    def descriptors(self) -> Descriptors:
        """Descriptors of all receipts, in their order: int8 [n, size], or [0, 0].

        Raises:
          BuildError: the model can't describe one of them.
        """
        if self._method and self._waiting:
            self._describe(self._method)
        return np.concatenate(self._parts)

    def _describe(self, method: Method) -> None:
        self._parts.append(method.describe(self._waiting))
        self._waiting = []


def _as_stored(boxes: Sequence[Box]) -> list[Box]:
    """Rounds sides to float32: a compaction, which reads them from records, has the same lines."""
    sides = np.array([box[:4] for box in boxes], np.float32).reshape(-1, 4).tolist()
    return [(*box_sides, box[4]) for box_sides, box in zip(sides, boxes, strict=True)]


def makes_layouts(layout_from: str, *, merge_spellings: bool) -> bool:
    """Returns whether a build with these options makes its layouts, once all inputs are known.

    Such a layout is no label of an input.
    """
    return merge_spellings or layout_from in FOUND


def layouts_were_made(build_options: Mapping[str, Any]) -> bool:
    """Returns whether a build made its layouts, from the options in its manifest."""
    # Manifests of older versions have neither option.
    return makes_layouts(
        build_options.get("layout_from", "column"),
        merge_spellings=build_options.get("merge_spellings", False),
    )
