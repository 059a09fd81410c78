"""DALI on the CPU over TFRecord files and their indexes, as in its guide."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, tfrecord, types

from benchmarks.peers import stored
from benchmarks.peers.output import Output
from schemas.example import encode_example
from schemas.receipt import Feature
from schemas.tfrecord import frame

_FEATURES = (
    Feature(name="image", dtype="bytes", doc="JPEG file"),
    Feature(name="label", dtype="int64", doc="layout"),
)


def prepare(data_dir: str, folder: Path) -> None:
    """TFRecord shards, and what DALI's tfrecord2idx would write of them: offsets and lengths."""
    for number, images in enumerate(stored.dealt(data_dir)):
        frames = [
            frame(encode_example(_FEATURES, {"image": each.encoded, "label": each.label}))
            for each in images
        ]
        starts = np.cumsum([0, *map(len, frames)])
        lines = [f"{start} {len(each)}\n" for start, each in zip(starts, frames, strict=False)]
        (folder / f"{number:05}.tfrecord").write_bytes(b"".join(frames))
        (folder / f"{number:05}.idx").write_text("".join(lines))


def batches(folder: Path, output: Output, *, workers: int) -> Iterator[Any]:
    """Batches; a batch's memory is used again once the next is asked for."""

    @pipeline_def(batch_size=output.batch_size, num_threads=workers, device_id=None, seed=0)
    def receipts() -> tuple[Any, Any]:
        values = fn.readers.tfrecord(
            path=sorted(map(str, folder.glob("*.tfrecord"))),
            index_path=sorted(map(str, folder.glob("*.idx"))),
            features={
                "image": tfrecord.FixedLenFeature((), tfrecord.string, ""),
                "label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
            },
            random_shuffle=True,
        )
        color = types.RGB if output.channels == 3 else types.GRAY
        images = fn.decoders.image(values["image"], device="cpu", output_type=color)
        images = fn.resize(
            images,
            size=(output.height, output.width),
            mode="not_larger" if output.fit == "pad" else "default",
            interp_type=types.INTERP_LINEAR,
            antialias=False,
        )
        padding = {
            "crop": (output.height, output.width),
            "out_of_bounds_policy": "pad",
            "fill_values": [1.0 if output.dtype == "float32" else 255.0],
        }
        if output.dtype == "float32":
            images = fn.crop_mirror_normalize(
                images, output_layout="HWC", mean=[0.0], std=[255.0], dtype=types.FLOAT, **padding
            )
        elif output.fit == "pad":
            images = fn.crop(images, **padding)
        return images, values["label"]

    pipeline = receipts()
    pipeline.build()
    while True:
        images, labels = pipeline.run()
        yield np.asarray(images.as_tensor()), np.asarray(labels.as_tensor())
