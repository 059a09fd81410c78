"""`summary.json`: the statistics of the records that a version added, exact, split by split.

A later version adds its own to those of the versions before it, and reads none of their records.
So nothing is rounded here: sums are hexadecimal integers, minimum and maximum are hexadecimal
floating-point numbers ("0x1.8000000000000p+1" is 3.0, "inf" that of no number).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from schemas import versioned_json
from schemas.statistics import FeatureSummary, RecordSummary
from schemas.typed_json import parse_as

FORMAT = "tillroll-summary"
FORMAT_VERSION = 1
_REPAIR = "build the dataset again"


@dataclass(frozen=True, kw_only=True)
class _StoredFeature:
    """A `FeatureSummary` in JSON's types; the same attributes."""

    records: int
    values: int
    min_values: int
    max_values: int
    not_finite: int
    zeros: int
    sum: str
    sum_of_squares: str
    minimum: str
    maximum: str
    bins: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class _StoredSplits:
    splits: Mapping[str, Mapping[str, _StoredFeature]]


def summary_text(splits: Mapping[str, RecordSummary]) -> str:
    """Makes the file's text, from the summary of each split; equal ones give equal text."""
    stored = {
        split: {name: _stored(feature) for name, feature in summary.features.items()}
        for split, summary in splits.items()
    }
    return versioned_json.to_text({"splits": stored}, format_name=FORMAT, version=FORMAT_VERSION)


def read_summary(text: str | bytes) -> dict[str, RecordSummary]:
    """Reads the summary of each split.

    Raises:
      ValueError: the text is not such a file, or is of a newer format version.
    """
    values = versioned_json.from_text(
        text, format_name=FORMAT, newest_version=FORMAT_VERSION, repair=_REPAIR
    )
    try:
        stored = parse_as(_StoredSplits, values, "summary")
        return {
            split: RecordSummary(features={name: _read(one) for name, one in features.items()})
            for split, features in stored.splits.items()
        }
    except ValueError as error:
        raise ValueError(f"damaged {FORMAT} file: {error}; {_REPAIR}") from error


def _stored(feature: FeatureSummary) -> dict[str, object]:
    return {
        "records": feature.records,
        "values": feature.values,
        "min_values": feature.min_values,
        "max_values": feature.max_values,
        "not_finite": feature.not_finite,
        "zeros": feature.zeros,
        "sum": hex(feature.sum),
        "sum_of_squares": hex(feature.sum_of_squares),
        "minimum": feature.minimum.hex(),
        "maximum": feature.maximum.hex(),
        "bins": {str(number): count for number, count in feature.bins.items()},
    }


def _read(stored: _StoredFeature) -> FeatureSummary:
    return FeatureSummary(
        records=stored.records,
        values=stored.values,
        min_values=stored.min_values,
        max_values=stored.max_values,
        not_finite=stored.not_finite,
        zeros=stored.zeros,
        sum=int(stored.sum, 16),
        sum_of_squares=int(stored.sum_of_squares, 16),
        minimum=float.fromhex(stored.minimum),
        maximum=float.fromhex(stored.maximum),
        bins=Counter({int(number): count for number, count in stored.bins.items()}),
    )
