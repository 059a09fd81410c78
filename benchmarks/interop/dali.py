"""Reads dataset directories with DALI on the CPU: all records of each split, by the `.idx` files.

DALI reads one text of a feature. Of several it reads none, so those of the boxes are left out.
"""

import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from nvidia.dali import fn, pipeline_def, tfrecord, types

from benchmarks.harness.command import benchmark_parser
from benchmarks.interop.expected import IMAGE, PIXELS, Expected, compare, splits
from benchmarks.interop.results import Result, save
from benchmarks.peers.stored import storage
from schemas.file_names import dali_index_name
from schemas.receipt import Feature

_NAME = "receipts"
_BATCH_SIZE = 16
_TYPES = {
    "bytes": (tfrecord.string, ""),
    "string": (tfrecord.string, ""),
    "int64": (tfrecord.int64, -1),
    "float32": (tfrecord.float32, -1.0),
}


def results(directory: Path) -> Iterator[Result]:
    """Yields a row for each split."""
    reader = f"DALI {version('nvidia-dali-cuda130')}"
    for expected in splits(directory):
        left_out = [
            feature.name
            for feature in expected.manifest.features
            if feature.ragged and feature.dtype == "string"
        ]
        found = compare(expected.records, _records(expected, left_out), without=left_out)
        yield Result.of(reader, expected, "all records", found)


def _records(expected: Expected, left_out: Sequence[str]) -> Iterator[dict[str, Any]]:
    features = [each for each in expected.manifest.features if each.name not in left_out]
    decode = storage(expected.manifest) == "jpeg"

    @pipeline_def(batch_size=_BATCH_SIZE, num_threads=1, device_id=None)
    def receipts() -> tuple[Any, ...]:
        values = fn.readers.tfrecord(
            path=list(map(str, expected.shards)),
            index_path=[dali_index_name(str(shard)) for shard in expected.shards],
            features={feature.name: _parsing(feature) for feature in features},
            name=_NAME,
        )
        stored = tuple(values[feature.name] for feature in features)
        if not decode:
            return stored
        return *stored, fn.decoders.image(values[IMAGE], device="cpu", output_type=types.RGB)

    pipeline = receipts()
    pipeline.build()
    # The last batch is filled up with records of the next epoch.
    left = pipeline.epoch_size(_NAME)
    while left > 0:
        outputs = pipeline.run()
        for at in range(min(left, _BATCH_SIZE)):
            values = [np.array(output.at(at)) for output in outputs]
            record = {
                feature.name: value.tobytes() if feature.dtype in ("bytes", "string") else value
                for feature, value in zip(features, values, strict=False)
            }
            yield record | ({PIXELS: values[-1]} if decode else {})
        left -= _BATCH_SIZE


def _parsing(feature: Feature) -> Any:
    """Returns DALI's description of a feature."""
    kind, default = _TYPES[feature.dtype]
    if feature.ragged:
        return tfrecord.VarLenFeature(kind, default)
    return tfrecord.FixedLenFeature((), kind, default)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("interop.dali", "RESULTS DIRECTORY...", __doc__)
    parser.add_argument(
        "results", type=Path, metavar="RESULTS", help="JSON file of the rows to write"
    )
    parser.add_argument(
        "directories", nargs="+", type=Path, metavar="DIRECTORY", help="dataset directories"
    )
    args = parser.parse(argv)
    save([row for directory in args.directories for row in results(directory)], args.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
