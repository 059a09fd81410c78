"""Statistics of a split: as a build writes them, beside those of a library, and of the records.

All are `tensorflow_metadata.v0.DatasetFeatureStatistics`.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tensorflow_metadata.proto.v0 import statistics_pb2

from benchmarks.interop.expected import Comparison, Values
from schemas.receipt import LAYOUT

_BOX = "image/object/bbox/xmin"
# Medians are estimates, from bins here and from a sketch there.
_TOLERANCES = {
    "min": 0.0,
    "max": 0.0,
    "num_zeros": 0.0,
    "mean": 1e-9,
    "std_dev": 1e-9,
    "median": 0.03,
}
_HISTOGRAMS = {statistics_pb2.Histogram.STANDARD, statistics_pb2.Histogram.QUANTILES}


def by_name(statistics: Any) -> dict[str, Any]:
    """Returns feature name to its FeatureNameStatistics."""
    return {feature.path.step[0]: feature for feature in statistics.features}


def category_counts(feature: Any) -> dict[str, int]:
    """Returns value to the number of its records; of a feature of strings that has a histogram."""
    buckets = feature.string_stats.rank_histogram.buckets
    return {bucket.label: int(bucket.sample_count) for bucket in buckets}


def count(statistics: Any, expected: Mapping[str, Values]) -> Comparison:
    """Holds numbers of records, boxes and values of categories against the records themselves."""
    features = by_name(statistics)
    faults = []
    if statistics.num_examples != len(expected):
        faults.append(f"{statistics.num_examples} records, there are {len(expected)}")
    boxes = int(features[_BOX].num_stats.common_stats.tot_num_values)
    if boxes != (wanted := sum(len(values[_BOX]) for values in expected.values())):
        faults.append(f"{boxes} boxes, there are {wanted}")
    labels = 0
    categories = {name for name, feature in features.items() if category_counts(feature)}
    if f"receipt/{LAYOUT}" not in categories:
        faults.append("layouts are not counted")
    for name in sorted(categories):
        counted = category_counts(features[name])
        truth = Counter(values[name][0].decode() for values in expected.values())
        if {value: number for value, number in counted.items() if number} == truth:
            labels += truth.total()
        else:
            faults.append(f"the counts of {name} are {counted}, should be {dict(truth)}")
    return Comparison(
        expected=len(expected),
        read=int(statistics.num_examples),
        boxes=boxes,
        labels=labels,
        faults=tuple(faults),
    )


def differences(statistics: Any, counted: Any) -> Iterator[str]:
    """Yields where statistics differ from those that a library has made of the same records."""
    if statistics.num_examples != counted.num_examples:
        yield f"{statistics.num_examples} records, counted {counted.num_examples}"
    features, others = by_name(statistics), by_name(counted)
    if features.keys() != others.keys():
        yield f"features {sorted(features)}, counted {sorted(others)}"
    for name in features.keys() & others.keys():
        own, other = features[name], others[name]
        if own.WhichOneof("stats") == "num_stats":
            yield from _differences_of_numbers(name, own.num_stats, other.num_stats)
        elif (values := category_counts(own)) and values != category_counts(other):
            yield f"the counts of {name} are {values}, counted {category_counts(other)}"


def _differences_of_numbers(name: str, own: Any, other: Any) -> Iterator[str]:
    for key, tolerance in _TOLERANCES.items():
        value, counted = getattr(own, key), getattr(other, key)
        if not math.isclose(value, counted, rel_tol=tolerance):
            yield f"the {key} of {name} is {value}, counted {counted}"
    values, counted = own.common_stats.tot_num_values, other.common_stats.tot_num_values
    if values != counted:
        yield f"{name} has {values} values, counted {counted}"
    if values and {histogram.type for histogram in own.histograms} != _HISTOGRAMS:
        yield f"{name} has not both histograms"
