"""Records of a dataset directory, which peers write in their own formats."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from schemas.example import decode_example
from schemas.file_names import COMPLETED, manifest_name
from schemas.manifest import Manifest, Split
from schemas.tfrecord import read_records
from schemas.versions import Versions

SPLIT = "train"
SHARDS = 8
Storage = Literal["jpeg", "raw"]


@dataclass(frozen=True, kw_only=True)
class StoredImage:
    """An image as it is stored.

    Attributes:
      encoded: a JPEG file, or pixels uint8 [height, width, channels].
      height, width, channels: of the stored image.
      label: number of its layout.
    """

    encoded: bytes
    height: int
    width: int
    channels: int
    label: int


def stored_images(data_dir: str) -> Iterator[StoredImage]:
    """Images of the train split, shard by shard.

    Raises:
      FileNotFoundError: there is no dataset.
      ValueError: the split is empty.
    """
    manifest = read_manifest(data_dir)
    if not manifest.splits[SPLIT].records:
        raise ValueError(f"split {SPLIT!r} of {data_dir} has no records: build it with some")
    for serialized in stored_records(data_dir, manifest.splits[SPLIT]):
        values: Any = decode_example(manifest.features, serialized)
        yield StoredImage(
            encoded=values["image/encoded"],
            height=values["image/height"],
            width=values["image/width"],
            channels=values["image/channels"],
            label=values["receipt/layout_id"],
        )


def stored_records(data_dir: str, split: Split) -> Iterator[bytes]:
    """Yields each serialized record of a split, shard by shard."""
    for shard in split.shards:
        with (Path(data_dir) / shard.name).open("rb") as file:
            for _, serialized in read_records(file):
                yield serialized


def dealt(data_dir: str) -> list[list[StoredImage]]:
    """Deals the images into `SHARDS` lists, fewer if there are fewer images."""
    images = list(stored_images(data_dir))
    shards = min(SHARDS, len(images))
    return [images[number::shards] for number in range(shards)]


def read_manifest(data_dir: str) -> Manifest:
    """Reads the manifest of the newest version of a local dataset directory."""
    versions = Versions.from_bytes((Path(data_dir) / COMPLETED).read_bytes())
    return Manifest.from_json((Path(data_dir) / manifest_name(versions.newest.number)).read_bytes())


def storage(manifest: Manifest) -> Storage:
    """Returns how the images of a dataset are stored."""
    raw = manifest.build_options.get("image", {}).get("encoding") == "raw"
    return "raw" if raw else "jpeg"
