"""The kinds of descriptors by which layouts are found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from beam_jobs.layouts.text import SIZE, TEXT_VERSION, text_descriptors
from beam_jobs.sources.row import Row
from schemas.layout_centroids import Descriptors

LayoutFrom = Literal["column", "text", "none"]
ONE_LAYOUT = "all"  # of `none`


@dataclass(frozen=True, kw_only=True)
class Method:
    """A kind of descriptors.

    Attributes:
      describe: makes the descriptors of rows, int8 [n, size]; zeros where a row says nothing.
      size: values of a descriptor.
      version: changes when the descriptors of the same row do.
      max_distance: cosine distance up to which receipts are of one layout.
    """

    describe: Callable[[Sequence[Row]], Descriptors]
    size: int
    version: int
    max_distance: float


def _describe_text(rows: Sequence[Row]) -> Descriptors:
    return text_descriptors([[box[4] for box in row.boxes] for row in rows])


METHODS = {
    "text": Method(describe=_describe_text, size=SIZE, version=TEXT_VERSION, max_distance=0.35)
}


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


def describe(layout_from: LayoutFrom, rows: Sequence[Row]) -> Descriptors:
    """Describes rows; int8 [n, size], or [n, 0] where layouts are not found by descriptors."""
    if layout_from not in METHODS:
        return np.zeros((len(rows), 0), np.int8)
    return METHODS[layout_from].describe(rows)
