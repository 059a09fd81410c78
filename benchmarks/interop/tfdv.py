"""Checks what TensorFlow Data Validation reads of dataset directories, and that it finds a shift.

Of each directory, it reads the statistics of the newest version, and makes those of the version's
shards by itself, which have to be the same. Shifts are those from a directory to another sample of
the same receipts, and to one whose totals and layouts have shifted (`benchmarks.interop.samples`
makes their tables).
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from benchmarks.harness.command import benchmark_parser
from benchmarks.interop.expected import Expected, splits
from benchmarks.interop.results import Result, save
from benchmarks.interop.statistics import count, differences
from schemas.file_names import schema_name, statistics_name

_READER = f"TensorFlow Data Validation {tfdv.__version__}"
_SPLIT = "train"  # in which shifts are looked for
# Both distances are from 0, for equal shares, to 1. Samples of 600 receipts are up to 0.05 apart.
_THRESHOLD = 0.1
LAYOUTS, TOTALS = COMPARED = "receipt/layout", "receipt/total"


@dataclass(frozen=True, kw_only=True)
class Read:
    """A split of a dataset directory, as TensorFlow Data Validation reads it.

    Attributes:
      statistics: a DatasetFeatureStatisticsList with the split as its only dataset.
      schema: the Schema.
    """

    statistics: Any
    schema: Any

    @classmethod
    def of(cls, expected: Expected) -> "Read":
        """Reads the statistics of the newest version.

        Raises:
          ValueError: the statistics have no such split.
        """
        directory, version = expected.directory, expected.manifest.version
        everything = tfdv.load_stats_binary(str(directory / statistics_name(version)))
        own = [dataset for dataset in everything.datasets if dataset.name == expected.split]
        if not own:
            names = [dataset.name for dataset in everything.datasets]
            raise ValueError(f"{directory} has no split {expected.split!r}, but {names}")
        return cls(
            statistics=statistics_pb2.DatasetFeatureStatisticsList(datasets=own),
            schema=tfdv.load_schema_text(str(directory / schema_name(version))),
        )

    def anomalies(self) -> Mapping[str, str]:
        """Feature name to what contradicts the schema."""
        return _described(tfdv.validate_statistics(self.statistics, self.schema))

    def shifts(self, other: "Read", kind: str) -> tuple[Mapping[str, float], Mapping[str, str]]:
        """Compares these records with others, by their layouts and totals.

        Args:
          other: what is compared with.
          kind: "drift" or "skew".

        Returns:
          Feature name to the distance that was measured, and to the anomaly, if there is one.
        """
        schema = type(self.schema)()
        schema.CopyFrom(self.schema)
        layouts, totals = (
            getattr(tfdv.get_feature(schema, name), f"{kind}_comparator") for name in COMPARED
        )
        layouts.infinity_norm.threshold = _THRESHOLD
        totals.jensen_shannon_divergence.threshold = _THRESHOLD
        # By deciles: of equal parts up to the highest total, the first holds nearly all totals.
        totals.jensen_shannon_divergence.source.type = schema_pb2.HistogramSelection.QUANTILES
        with_what = {"drift": "previous_statistics", "skew": "serving_statistics"}[kind]
        found = tfdv.validate_statistics(self.statistics, schema, **{with_what: other.statistics})
        measured = {
            info.path.step[0]: measurement.value
            for info in found.drift_skew_info
            for measurement in getattr(info, f"{kind}_measurements")
        }
        return measured, _described(found)


def _described(anomalies: Any) -> Mapping[str, str]:
    return {name: info.description for name, info in anomalies.anomaly_info.items()}


def results(directory: Path) -> Iterator[Result]:
    """Yields a row for the statistics of each split."""
    for expected in splits(directory):
        read = Read.of(expected)
        [own] = read.statistics.datasets
        faults = [f"anomaly in {name}: {text}" for name, text in read.anomalies().items()]
        faults += differences(own, _counted(expected.shards))
        yield Result.of(_READER, expected, "statistics", count(own, expected.records), faults)


def _counted(shards: Sequence[Path]) -> Any:
    """Makes the DatasetFeatureStatistics of shards, by the library."""
    with tempfile.TemporaryDirectory() as folder:
        # It takes one pattern, and a directory may have shards of other versions.
        for shard in shards:
            Path(folder, shard.name).symlink_to(shard.resolve())
        [counted] = tfdv.generate_statistics_from_tfrecord(f"{folder}/*").datasets
    return counted


def shift_results(first: Path, others: Mapping[Path, bool]) -> Iterator[Result]:
    """Yields a row for the shifts from a directory to each of others.

    Args:
      first: the directory to begin with.
      others: directory to whether its receipts have shifted.
    """
    before = Read.of(Expected.of(first, _SPLIT))
    for directory, shifted in others.items():
        expected = Expected.of(directory, _SPLIT)
        read = Read.of(expected)
        faults = []
        for kind in ("drift", "skew"):
            measured, anomalies = read.shifts(before, kind)
            for name in COMPARED:
                distance = measured.get(name)
                shown = "not measured" if distance is None else f"{distance:.3f}"
                sentence = f"{kind} of {name}: {shown}, found: {name in anomalies}"
                print(f"{first.name} to {directory.name}, {sentence}")
                if distance is None or (name in anomalies) != shifted:
                    faults.append(f"{sentence}, should be {shifted}")
        [own] = read.statistics.datasets
        part = f"shifts from {first.name}"
        yield Result.of(_READER, expected, part, count(own, expected.records), faults)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("interop.tfdv", "RESULTS DIRECTORY...", __doc__)
    parser.add_argument(
        "results", type=Path, metavar="RESULTS", help="JSON file of the rows to write"
    )
    parser.add_argument(
        "directories", nargs="+", type=Path, metavar="DIRECTORY", help="dataset directories"
    )
    parser.add_argument(
        "--shifts",
        nargs=3,
        required=True,
        type=Path,
        metavar=("FIRST", "SECOND", "SHIFTED"),
        help="dataset directories of two samples, and of shifted receipts",
    )
    args = parser.parse(argv)
    first, second, shifted = args.shifts
    rows = [row for directory in args.directories for row in results(directory)]
    rows += shift_results(first, {second: False, shifted: True})
    save(rows, args.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
