"""A dataset directory written with `schemas` alone, for tests that must do without Beam."""

import hashlib
import io
from pathlib import Path

import google_crc32c
import numpy as np
from PIL import Image

from schemas.example import encode_example
from schemas.index import RecordIndex
from schemas.manifest import (
    COMPLETED,
    MANIFEST,
    Counts,
    Manifest,
    Shard,
    Split,
    index_name,
    shard_name,
)
from schemas.receipt import receipt_features
from schemas.tfrecord import frame

LAYOUTS = {"alpha": 20, "beta": 9, "gamma": 2, "omega": 1}
HEIGHT, WIDTH = 60, 40
BOX = (0.25, 0.5, 0.75, 0.8)  # xmin, ymin, xmax, ymax: black on white in every image
FEATURES = receipt_features()


def pixels(*, grey: bool = False) -> np.ndarray:
    """The image of every record: white, black inside the box; uint8 [height, width, channels]."""
    image = np.full((HEIGHT, WIDTH, 1 if grey else 3), 255, np.uint8)
    xmin, ymin, xmax, ymax = BOX
    image[
        round(ymin * HEIGHT) : round(ymax * HEIGHT), round(xmin * WIDTH) : round(xmax * WIDTH)
    ] = 0
    return image


def example(number: int, layout: str, *, raw: bool, grey: bool) -> bytes:
    """One serialised record."""
    image = pixels(grey=grey)
    buffer = io.BytesIO()
    Image.fromarray(image[:, :, 0] if grey else image).save(buffer, "JPEG", quality=95)
    encoded = image.tobytes() if raw else buffer.getvalue()
    xmin, ymin, xmax, ymax = BOX
    return encode_example(
        FEATURES,
        {
            "image/encoded": encoded,
            "image/format": "raw" if raw else "jpeg",
            "image/height": HEIGHT,
            "image/width": WIDTH,
            "image/channels": image.shape[2],
            "image/source_id": f"{layout}-{number}",
            "image/key/sha256": hashlib.sha256(encoded).hexdigest(),
            "image/object/bbox/xmin": [xmin],
            "image/object/bbox/ymin": [ymin],
            "image/object/bbox/xmax": [xmax],
            "image/object/bbox/ymax": [ymax],
            "image/object/text": ["TOTAL"],
            "receipt/group": "",
            "receipt/layout": layout,
            "receipt/layout_id": sorted(LAYOUTS).index(layout),
        },
    )


def write_dataset(
    directory: Path, *, shards: int = 4, raw: bool = False, grey: bool = False
) -> Path:
    """Writes a directory with the split "train" of all `LAYOUTS`, and an empty "validation"."""
    directory.mkdir(parents=True)
    names = sorted(LAYOUTS)
    layouts = [name for name in names for _ in range(LAYOUTS[name])]
    written = []
    for shard in range(shards):
        name, index = shard_name("train", shard, shards), index_name("train", shard, shards)
        frames, rows, offset = [], [], 0
        for number in range(shard, len(layouts), shards):
            framed = frame(example(number, layouts[number], raw=raw, grey=grey))
            frames.append(framed)
            rows.append(
                {
                    "id": f"{layouts[number]}-{number}",
                    "offset": offset,
                    "length": len(framed),
                    "height": HEIGHT,
                    "width": WIDTH,
                    "channels": 1 if grey else 3,
                    "layout": names.index(layouts[number]),
                }
            )
            offset += len(framed)
        data = b"".join(frames)
        index_bytes = RecordIndex.of_rows(rows, shard=shard, categories=["layout"]).to_bytes()
        (directory / name).write_bytes(data)
        (directory / index).write_bytes(index_bytes)
        written.append(
            Shard(
                name=name,
                records=len(rows),
                size_bytes=len(data),
                crc32c=google_crc32c.value(data),
                index_name=index,
                index_crc32c=google_crc32c.value(index_bytes),
            )
        )
    manifest = Manifest(
        features=FEATURES,
        labels=(),
        vocabularies={"layout": tuple(names)},
        splits={
            "train": Split(
                shards=tuple(written),
                category_counts={"layout": tuple(LAYOUTS[name] for name in names)},
            ),
            "validation": Split(shards=(), category_counts={"layout": (0,) * len(names)}),
        },
        counts=Counts(inputs=len(layouts), written=len(layouts), duplicates=0, quarantined={}),
        source_fingerprint="",
        written_by="tests",
    )
    (directory / MANIFEST).write_text(manifest.to_json())
    (directory / COMPLETED).write_text(manifest.digest)
    return directory
