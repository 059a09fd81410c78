"""Centroids of the layouts that a build found by itself, where receipts have none given.

By them, what is appended to a dataset gets its layouts. A file of centroids is an uncompressed
`.npz` archive.
"""

import io
import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Descriptors = npt.NDArray[np.int8]

# The layout of receipts that are like no others, or that say nothing to compare.
NO_CLUSTER = "no-cluster"


def cluster_name(number: int) -> str:
    """Name of a layout that was found, such as cluster-00012."""
    return f"cluster-{number:05d}"


@dataclass(frozen=True, kw_only=True, eq=False)
class LayoutCentroids:
    """Centroids of layouts.

    Attributes:
      layout_from: what the descriptors are made of, as the option of the build.
      descriptor_version: changes when descriptors of the same receipts do.
      values: int8 [layouts, size]; row i belongs to the layout `cluster_name(i)`. A row of zeros is
        like no receipt: that of a layout whose receipts have all been forgotten.
    """

    layout_from: str
    descriptor_version: int
    values: Descriptors

    def __len__(self) -> int:
        return len(self.values)

    def only(self, layouts: Collection[str]) -> Self:
        """Returns the same centroids, but zeros for those of layouts that are not among some."""
        stays = [cluster_name(number) in layouts for number in range(len(self))]
        return replace(self, values=self.values * np.array(stays, np.int8)[:, None])

    def to_bytes(self) -> bytes:
        """The file's contents; equal centroids give equal bytes."""
        about = {"layout_from": self.layout_from, "descriptor_version": self.descriptor_version}
        buffer = io.BytesIO()
        np.savez(
            buffer,
            about=np.frombuffer(json.dumps(about, sort_keys=True).encode(), np.uint8),
            values=self.values,
        )
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`.

        Raises:
          ValueError: the bytes are not such a file.
        """
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                about: dict[str, Any] = json.loads(arrays["about"].tobytes())
                return cls(values=arrays["values"], **about)
        except Exception as error:  # zipfile and NumPy raise many kinds over a damaged file
            raise ValueError(f"not a file of centroids: {error}") from error
