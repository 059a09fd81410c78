"""Checks what TensorFlow Data Validation reads of dataset directories, and that it finds a shift.

It also counts the records of the first directory by itself, which has to give the same statistics.
It needs three directories: two of samples of the same receipts, and a third whose totals and
layouts have shifted (`benchmarks.interop.samples` makes their tables). `make interop` builds them
and runs this in an environment that has TensorFlow Data Validation. Exits with 1 where something
was not read, or found, as it should be.
"""

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from benchmarks.harness.command import benchmark_parser
from schemas.file_names import schema_name, shard_name, statistics_name
from schemas.versions import FIRST_VERSION

# Both distances are from 0, for equal shares, to 1. Samples of 600 receipts are up to 0.05 apart.
_THRESHOLD = 0.1
LAYOUTS, TOTALS = COMPARED = "receipt/layout", "receipt/total"
# Medians are estimates, from bins here and from a sketch there.
_TOLERANCES = {
    "min": 0.0,
    "max": 0.0,
    "num_zeros": 0.0,
    "mean": 1e-9,
    "std_dev": 1e-9,
    "median": 0.03,
}


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
    def of(cls, directory: Path, split: str) -> "Read":
        """Reads a directory.

        Raises:
          ValueError: the statistics have no such split.
        """
        everything = tfdv.load_stats_binary(str(directory / statistics_name(FIRST_VERSION)))
        own = [dataset for dataset in everything.datasets if dataset.name == split]
        if not own:
            names = [dataset.name for dataset in everything.datasets]
            raise ValueError(f"{directory} has no split {split!r}, but {names}")
        return cls(
            statistics=statistics_pb2.DatasetFeatureStatisticsList(datasets=own),
            schema=tfdv.load_schema_text(str(directory / schema_name(FIRST_VERSION))),
        )

    @property
    def features(self) -> Mapping[str, Any]:
        """Feature name to its FeatureNameStatistics."""
        [dataset] = self.statistics.datasets
        return {feature.path.step[0]: feature for feature in dataset.features}

    def anomalies(self) -> Mapping[str, str]:
        """Feature name to what contradicts the schema."""
        return _described(tfdv.validate_statistics(self.statistics, self.schema))

    def without_histogram(self) -> list[str]:
        """Names of the features of numbers that have values, but not both histograms."""
        return [
            name
            for name, feature in self.features.items()
            if feature.WhichOneof("stats") == "num_stats"
            and feature.num_stats.common_stats.tot_num_values
            and {histogram.type for histogram in feature.num_stats.histograms}
            != {statistics_pb2.Histogram.STANDARD, statistics_pb2.Histogram.QUANTILES}
        ]

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


def differences(read: Read, shards: str) -> Iterator[str]:
    """Yields where statistics differ from those that the library makes of the shards themselves."""
    [counted] = tfdv.generate_statistics_from_tfrecord(shards).datasets
    for own in counted.features:
        [name] = own.path.step
        feature = read.features[name]
        if own.WhichOneof("stats") == "num_stats":
            expected, found = own.num_stats, feature.num_stats
            for key, tolerance in _TOLERANCES.items():
                values = getattr(expected, key), getattr(found, key)
                if not math.isclose(*values, rel_tol=tolerance):
                    yield f"the {key} of {name} is {values[0]}, statistics.pb says {values[1]}"
        elif name == LAYOUTS:
            expected, found = (
                {bucket.label: bucket.sample_count for bucket in one.rank_histogram.buckets}
                for one in (own.string_stats, feature.string_stats)
            )
            if expected != found:
                yield f"the counts of {name} are {expected}, statistics.pb says {found}"
    print(f"{len(counted.features)} features were counted in {shards}")


def _described(anomalies: Any) -> Mapping[str, str]:
    return {name: info.description for name, info in anomalies.anomaly_info.items()}


def faults(first: Read, second: Read, shifted: Read) -> Iterator[str]:
    """Prints what was read, and yields a sentence for whatever is not as it should be."""
    for name, read in (("first", first), ("second", second), ("shifted", shifted)):
        [dataset] = read.statistics.datasets
        numbers = sum(f.WhichOneof("stats") == "num_stats" for f in read.features.values())
        values = len(read.features[LAYOUTS].string_stats.rank_histogram.buckets)
        print(
            f"{name}: {dataset.num_examples} receipts, {len(read.features)} features, {numbers} of "
            f"numbers, {values} layouts"
        )
        for feature, text in read.anomalies().items():
            yield f"{name} has an anomaly in {feature}: {text}"
        if missing := read.without_histogram():
            yield f"{name} has no histograms of {missing}"
    for name, other, shift in (("second", second, False), ("shifted", shifted, True)):
        for kind in ("drift", "skew"):
            measured, anomalies = other.shifts(first, kind)
            for feature in COMPARED:
                found = feature in anomalies
                distance = measured.get(feature)
                listed = "not measured" if distance is None else f"{distance:.3f}"
                print(f"{kind} of {feature} from first to {name}: {listed}, found: {found}")
                if distance is None or found != shift:
                    yield f"{kind} of {feature} in {name}: found {found}, should be {shift}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("interop.tfdv", "FIRST SECOND SHIFTED", __doc__)
    parser.add_argument("first", type=Path, metavar="FIRST", help="dataset directory of a sample")
    parser.add_argument(
        "second", type=Path, metavar="SECOND", help="dataset directory of another sample"
    )
    parser.add_argument(
        "shifted", type=Path, metavar="SHIFTED", help="dataset directory of shifted receipts"
    )
    parser.add_argument(
        "--split", default="train", metavar="NAME", help="split to compare (default: %(default)s)"
    )
    args = parser.parse(argv)
    print(f"TensorFlow Data Validation {tfdv.__version__}, split {args.split}")
    try:
        reads = [Read.of(path, args.split) for path in (args.first, args.second, args.shifted)]
    except (ValueError, OSError) as error:
        parser.error(str(error))
    shards = str(args.first / shard_name(args.split, 0)).replace("00000", "*")
    found = [*faults(*reads), *differences(reads[0], shards)]
    for fault in found:
        print(f"FAULT: {fault}")
    print(f"{len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
