"""A dataset directory written with `schemas` alone, for tests that must do without Beam."""

import hashlib
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

import google_crc32c
import numpy as np

from schemas.example import encode_example, parse_example
from schemas.excluded import Excluded, ExcludedRecord
from schemas.file_names import (
    dali_index_name,
    excluded_name,
    index_name,
    least_certain_name,
    lookup_name,
    shard_name,
    shard_summary_name,
    statistics_name,
)
from schemas.index import IndexRow, RecordIndex, dali_index
from schemas.least_certain import LeastCertain
from schemas.lookup import RecordLookup
from schemas.manifest import Counts, Generation, Manifest, Shard, Split
from schemas.raw_pixels import align_pixels, pixels_form
from schemas.receipt import Label, receipt_features
from schemas.statistics import RecordSummary
from schemas.summary_file import summary_text
from schemas.tfdv import statistics_bytes
from schemas.tfrecord import frame
from schemas.versions import FIRST_VERSION
from tests.support.dataset_files import change_manifest, manifest_of, write_manifest
from tests.support.pictures import jpeg

LAYOUTS = {"alpha": 20, "beta": 9, "gamma": 2, "omega": 1}
HEIGHT, WIDTH = 60, 40
BOX = (0.25, 0.5, 0.75, 0.8)  # xmin, ymin, xmax, ymax: black on white in every image


def pixels(
    number: int = 0, *, gray: bool = False, size: tuple[int, int] = (HEIGHT, WIDTH)
) -> np.ndarray:
    """White, nearly black inside the box; uint8 [height, width, channels]."""
    height, width = size
    image = np.full((height, width, 1 if gray else 3), 255, np.uint8)
    xmin, ymin, xmax, ymax = BOX
    image[
        round(ymin * height) : round(ymax * height), round(xmin * width) : round(xmax * width)
    ] = number % 20
    return image


def example(
    number: int,
    layout: str,
    layout_id: int,
    *,
    raw: bool,
    gray: bool,
    labels: Sequence[Label],
    boxes: bool = True,
    size: tuple[int, int] = (HEIGHT, WIDTH),
) -> bytes:
    """One serialized record."""
    image = pixels(number, gray=gray, size=size)
    encoded = image.tobytes() if raw else jpeg(image)
    xmin, ymin, xmax, ymax = BOX
    return encode_example(
        receipt_features(labels),
        {
            "image/encoded": encoded,
            "image/format": "raw" if raw else "jpeg",
            "image/height": image.shape[0],
            "image/width": image.shape[1],
            "image/channels": image.shape[2],
            "image/source_id": f"{layout}-{number}",
            "image/key/sha256": hashlib.sha256(encoded).hexdigest(),
            "image/key/pixels": f"{number:032x}",
            "image/object/bbox/xmin": [xmin] * boxes,
            "image/object/bbox/ymin": [ymin] * boxes,
            "image/object/bbox/xmax": [xmax] * boxes,
            "image/object/bbox/ymax": [ymax] * boxes,
            "image/object/text": ["TOTAL"] * boxes,
            "receipt/group": "",
            "receipt/layout": layout,
            "receipt/layout_id": layout_id,
            **{f"receipt/{label.name}": 10.5 + number for label in labels},
        },
    )


def write_dataset(
    directory: Path,
    *,
    counts: Mapping[str, int] = LAYOUTS,
    shards: int = 4,
    raw: bool = False,
    gray: bool = False,
    labels: Sequence[Label] = (),
    without_boxes: Container[str] = (),
    sizes: Sequence[tuple[int, int]] = ((HEIGHT, WIDTH),),
    aligned: bool = True,
) -> Path:
    """Writes a directory with the split "train" of these layouts, and an empty "validation".

    Labels are of type float; records of the layouts in `without_boxes` have no boxes. Images have
    the `sizes` in turn. Older builds did not align raw pixels.
    """
    directory.mkdir(parents=True)
    names = sorted(counts)
    layouts = [name for name in names for _ in range(counts[name])]
    features = receipt_features(labels)
    channels = 1 if gray else 3
    summary = RecordSummary()
    written = []
    for shard in range(shards):
        records = []
        for number in range(shard, len(layouts), shards):
            layout = layouts[number]
            layout_id = names.index(layout)
            size = sizes[number % len(sizes)]
            record = example(
                number,
                layout,
                layout_id,
                raw=raw,
                gray=gray,
                labels=labels,
                boxes=layout not in without_boxes,
                size=size,
            )
            if raw and aligned:
                record = align_pixels(record)
            summary.add(parse_example(features, record))
            records.append((f"{layout}-{number}", layout_id, size, record))
        written.append(_write_shard(directory, shard, records, channels=channels))
    train = Split(
        shards=tuple(written),
        category_counts={"layout": tuple(counts[name] for name in names)},
    )
    validation = Split(shards=(), category_counts={"layout": (0,) * len(names)})
    generation = Generation(
        version=FIRST_VERSION,
        splits={"train": train, "validation": validation},
        counts=Counts(inputs=len(layouts), written=len(layouts), duplicates=0, quarantined={}),
        build_options={
            "image": _image_options(raw=raw, channels=channels, size=sizes[0]),
            **(pixels_form("raw") if raw and aligned else {}),
        },
        source_fingerprint="",
        written_by="tests",
    )
    manifest = Manifest(
        version=FIRST_VERSION,
        features=features,
        labels=tuple(labels),
        vocabularies={"layout": tuple(names)},
        generations=(generation,),
    )
    _finish(directory, manifest, summary)
    return directory


def _write_shard(
    directory: Path,
    shard: int,
    records: Sequence[tuple[str, int, tuple[int, int], bytes]],
    *,
    channels: int,
) -> Shard:
    """Writes a shard of "train" and its index; records are (id, layout_id, size, serialized)."""
    name = shard_name("train", shard)
    stored, rows = bytearray(), []
    for id_, layout_id, (height, width), record in records:
        framed = frame(record)
        rows.append(
            IndexRow(
                id=id_,
                offset=len(stored),
                length=len(framed),
                height=height,
                width=width,
                channels=channels,
                categories={"layout": layout_id},
            )
        )
        stored += framed
    data = bytes(stored)
    index = RecordIndex.of_rows(rows, categories=["layout"])
    index_bytes, dali_bytes = index.to_bytes(), dali_index(index)
    (directory / name).write_bytes(data)
    (directory / index_name(name)).write_bytes(index_bytes)
    (directory / dali_index_name(name)).write_bytes(dali_bytes)
    lookup_bytes = _lookup(len(rows)).to_bytes()
    (directory / lookup_name(name)).write_bytes(lookup_bytes)
    summary_bytes = summary_text({"train": RecordSummary()}).encode()
    (directory / shard_summary_name(name)).write_bytes(summary_bytes)
    return Shard(
        name=name,
        records=len(rows),
        size_bytes=len(data),
        crc32c=google_crc32c.value(data),
        index_crc32c=google_crc32c.value(index_bytes),
        lookup_crc32c=google_crc32c.value(lookup_bytes),
        summary_crc32c=google_crc32c.value(summary_bytes),
        dali_index_crc32c=google_crc32c.value(dali_bytes),
    )


def _lookup(records: int) -> RecordLookup:
    """A lookup that knows no record."""
    return RecordLookup(
        key=np.zeros((records, 2), np.uint64),
        pixels=np.zeros((records, 2), np.uint64),
        labels=np.zeros(records, np.uint64),
        group=np.zeros(records, np.uint64),
    )


def _image_options(*, raw: bool, channels: int, size: tuple[int, int]) -> dict[str, object]:
    return {
        "encoding": "raw" if raw else "jpeg",
        "raw_size": [*size],
        "channels": channels,
        "fit": "pad",
        "max_side": 1024,
        "quality": 90,
    }


def _finish(directory: Path, manifest: Manifest, summary: RecordSummary) -> None:
    """Writes statistics, manifest and COMPLETED; `summary` is of the splits that have shards."""
    summaries = {
        name: (summary if split.shards else RecordSummary(), split.category_counts)
        for name, split in manifest.splits.items()
    }
    statistics = statistics_bytes(manifest.features, summaries, manifest.vocabularies)
    path = directory / statistics_name(manifest.version)
    path.parent.mkdir(parents=True)
    path.write_bytes(statistics)
    write_manifest(directory, manifest.to_json())


def list_least_certain(directory: Path, listed: LeastCertain) -> Path:
    """Writes the list of the least certain receipts of version 1, as if its layouts were found."""
    path = directory / least_certain_name(FIRST_VERSION)
    path.write_text(listed.to_json())
    data = path.read_bytes()
    sums = {"size_bytes": len(data), "crc32c": google_crc32c.value(data)}

    def add(manifest: dict) -> None:
        manifest["files"][least_certain_name(FIRST_VERSION)] = sums

    change_manifest(directory, add)
    return path


def exclude(directory: Path, positions: Mapping[int, Sequence[int]]) -> None:
    """Writes the excluded.json that leaves out these positions of these shards of "train"."""
    manifest = manifest_of(directory)
    excluded = Excluded(dataset_digest=manifest.digest)
    for shard, own in positions.items():
        index = read_index(directory, shard)
        records = [
            ExcludedRecord(
                position=each, id=index.id(each), offset=int(index.offset[each]), fault="damaged"
            )
            for each in own
        ]
        excluded = excluded.adding(manifest.splits["train"].shards[shard].name, records)
    (directory / excluded_name(manifest.version)).write_text(excluded.to_json())


def read_index(directory: Path, shard: int) -> RecordIndex:
    """The record index of a shard of "train"."""
    name = manifest_of(directory).splits["train"].shards[shard].index_name
    return RecordIndex.from_bytes((directory / name).read_bytes())
