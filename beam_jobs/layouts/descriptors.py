"""The kinds of descriptors by which layouts are found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image

from beam_jobs.layouts.image import IMAGE_SIZE, IMAGE_VERSION, image_descriptors
from beam_jobs.layouts.text import SIZE, TEXT_VERSION, text_descriptors
from beam_jobs.sources.row import Row
from schemas.layout_centroids import Descriptors

LayoutFrom = Literal["column", "text", "image", "none"]
ONE_LAYOUT = "all"  # of `none`
_AT_ONCE = 32  # receipts whose images are held to be described together

_Receipt = tuple[Row, Image.Image | None]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A kind of descriptors.

    Attributes:
      describe: makes the descriptors of receipts, int8 [n, size]; zeros where one says nothing.
      size: values of a descriptor.
      version: changes when the descriptors of the same receipt do.
      max_distance: mean cosine distance up to which two clusters of receipts are of one layout.
      max_centroid_distance: cosine distance from a layout's centroid up to which a receipt is of
        that layout. It is smaller where descriptors are noisy, as a mean is less so.
      needs_images: whether receipts are described by their images.
      needs: what a receipt must have, to have a descriptor that is not zeros.
    """

    describe: Callable[[Sequence[_Receipt]], Descriptors]
    size: int
    version: int
    max_distance: float
    max_centroid_distance: float
    needs_images: bool
    needs: str


def _describe_text(receipts: Sequence[_Receipt]) -> Descriptors:
    return text_descriptors([[box[4] for box in row.boxes] for row, _ in receipts])


def _describe_images(receipts: Sequence[_Receipt]) -> Descriptors:
    return image_descriptors(image for _, image in receipts if image)


METHODS = {
    "text": Method(
        describe=_describe_text,
        size=SIZE,
        version=TEXT_VERSION,
        max_distance=0.35,
        max_centroid_distance=0.35,
        needs_images=False,
        needs="boxes with text",
    ),
    "image": Method(
        describe=_describe_images,
        size=IMAGE_SIZE,
        version=IMAGE_VERSION,
        max_distance=0.92,
        max_centroid_distance=0.8,
        needs_images=True,
        needs="print in its image",
    ),
}


class Describer:
    """Describes receipts, some at a time; nothing where layouts are not found by descriptors."""

    def __init__(self, layout_from: LayoutFrom) -> None:
        self._method = METHODS.get(layout_from)
        self._waiting: list[_Receipt] = []
        self._parts = [np.zeros((0, self._method.size if self._method else 0), np.int8)]

    def add(self, row: Row, open_image: Callable[[], Image.Image] | None = None) -> None:
        """Adds a receipt; a dry run has no image to open."""
        if self._method:
            image = open_image() if open_image and self._method.needs_images else None
            self._waiting.append((row, image))
            if len(self._waiting) == _AT_ONCE:
                self._describe(self._method)

    def descriptors(self) -> Descriptors:
        """Descriptors of all receipts, in their order: int8 [n, size], or [0, 0]."""
        if self._method and self._waiting:
            self._describe(self._method)
        return np.concatenate(self._parts)

    def _describe(self, method: Method) -> None:
        self._parts.append(method.describe(self._waiting))
        self._waiting = []


def makes_layouts(layout_from: str, *, merge_spellings: bool) -> bool:
    """Returns whether a build with these options makes its layouts, once all inputs are known.

    Such a layout is no label of an input.
    """
    return merge_spellings or layout_from in METHODS


def layouts_were_made(build_options: Mapping[str, Any]) -> bool:
    """Returns whether a build made its layouts, from the options in its manifest."""
    # Manifests of older versions have neither option.
    return makes_layouts(
        build_options.get("layout_from", "column"),
        merge_spellings=build_options.get("merge_spellings", False),
    )
