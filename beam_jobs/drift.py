"""Differences between the records of two versions of a dataset, by their statistics.

The distances are those of TensorFlow Data Validation. With the shares p and q of each value, the
L-infinity distance is the largest |p - q|. The Jensen-Shannon divergence is the mean of the
Kullback-Leibler divergences, in bits, of p and of q from (p + q) / 2: 0 for equal shares and 1 for
shares that have no value in common (Lin, 1991, "Divergence measures based on the Shannon entropy").
For numbers, a value is a bin of `schemas.bins`, which is finer than the ten buckets of TFDV.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from beam_jobs.writing.output import read_manifest, read_summary_of
from schemas.manifest import Manifest, Split
from schemas.receipt import id_feature
from schemas.statistics import FeatureSummary, RecordSummary


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two versions that are compared.

    Attributes:
      directory: the dataset directory.
      manifest: the manifest of the version.
      summary: statistics of its records, excluded ones too.
      counts: category to value to its number of records; values that no record has are left out.
    """

    directory: str
    manifest: Manifest
    summary: RecordSummary
    counts: Mapping[str, Mapping[str, int]]

    @classmethod
    def read(cls, directory: str, version: int | None, split: str | None = None) -> Self:
        """Reads a version, None for the newest, or a split of it alone.

        Raises:
          ValueError: there is no such version or split, or a file is damaged.
          OSError: a file can't be read.
        """
        manifest = read_manifest(directory, version)
        if split is not None and split not in manifest.splits:
            raise ValueError(
                f"{directory} has no split {split!r}: choose one of {', '.join(manifest.splits)}"
            )
        chosen = [split] if split else [*manifest.splits]
        vocabularies = manifest.vocabularies
        union = Split.union(
            [manifest.splits[name] for name in chosen],
            {name: len(values) for name, values in vocabularies.items()},
        )
        counts = {
            name: {
                value: count
                for value, count in zip(values, union.category_counts[name], strict=True)
                if count
            }
            for name, values in vocabularies.items()
        }
        summaries = [read_summary_of(directory, each) for each in manifest.generations]
        summary = RecordSummary.merged(each[name] for each in summaries for name in chosen)
        return cls(directory=directory, manifest=manifest, summary=summary, counts=counts)

    @property
    def name(self) -> str:
        return f"{self.directory}, version {self.manifest.version}"

    @property
    def records(self) -> int:
        return max((each.records for each in self.summary.features.values()), default=0)


@dataclass(frozen=True, kw_only=True)
class Share:
    """The share of the records that have a value, before and now."""

    value: str
    before: float
    now: float


@dataclass(frozen=True, kw_only=True)
class CategoryDrift:
    """Drift of a category.

    Attributes:
      l_infinity, jensen_shannon: the distances.
      new: values that no record had before, those of most records first.
      vanished: values that no record has now, those of most records first.
      shares: all values, those whose share moved most first.
    """

    l_infinity: float
    jensen_shannon: float
    new: tuple[str, ...]
    vanished: tuple[str, ...]
    shares: tuple[Share, ...]


@dataclass(frozen=True, kw_only=True)
class NumberDrift:
    """Drift of a feature of numbers; NaN where there are none."""

    jensen_shannon: float
    mean_before: float
    mean_now: float
    standard_deviation_before: float
    standard_deviation_now: float
    median_before: float
    median_now: float


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Differences between the records of two versions.

    Attributes:
      records_before, records_now: number of records.
      categories: category to its drift.
      numbers: feature of numbers to its drift; those of most drift first.
      only_before, only_now: features and categories that one of the two lacks.
    """

    records_before: int
    records_now: int
    categories: Mapping[str, CategoryDrift]
    numbers: Mapping[str, NumberDrift]
    only_before: tuple[str, ...]
    only_now: tuple[str, ...]


def drift(before: Side, now: Side) -> Drift:
    """Compares two versions."""
    known = [_features(side) for side in (before, now)]
    categories = {
        name: _category(before.counts[name], now.counts[name])
        for name in now.counts
        if name in before.counts
    }
    numbers = {
        name: _number(
            before.summary.features.get(name, FeatureSummary()),
            now.summary.features.get(name, FeatureSummary()),
            whole=dtype == "int64",
        )
        for name, dtype in known[1].items()
        if dtype in ("int64", "float32") and known[0].get(name) == dtype
    }
    return Drift(
        records_before=before.records,
        records_now=now.records,
        categories=categories,
        numbers=dict(sorted(numbers.items(), key=lambda each: -_rank(each[1].jensen_shannon))),
        only_before=tuple(name for name in known[0] if known[1].get(name) != known[0][name]),
        only_now=tuple(name for name in known[1] if known[0].get(name) != known[1][name]),
    )


def _features(side: Side) -> dict[str, str]:
    """Name to dtype of all features but the numbers of categories' values, which mean nothing."""
    numbers = {id_feature(name) for name in side.manifest.vocabularies}
    return {
        feature.name: feature.dtype
        for feature in side.manifest.features
        if feature.name not in numbers
    }


def _category(before: Mapping[str, int], now: Mapping[str, int]) -> CategoryDrift:
    old, new = _shares(before), _shares(now)
    shares = [
        Share(value=value, before=old.get(value, 0.0), now=new.get(value, 0.0))
        for value in {*old, *new}
    ]
    # Equal ones by name, so that equal versions give equal text.
    shares.sort(key=lambda share: (-abs(share.now - share.before), share.value))
    return CategoryDrift(
        l_infinity=max((abs(share.now - share.before) for share in shares), default=0.0),
        jensen_shannon=jensen_shannon(before, now),
        new=_missing(now, before),
        vanished=_missing(before, now),
        shares=tuple(shares),
    )


def _missing(counts: Mapping[str, int], others: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(counts.keys() - others.keys(), key=lambda each: (-counts[each], each)))


def _number(before: FeatureSummary, now: FeatureSummary, *, whole: bool) -> NumberDrift:
    return NumberDrift(
        jensen_shannon=jensen_shannon(before.bins, now.bins),
        mean_before=before.mean if before.finite else math.nan,
        mean_now=now.mean if now.finite else math.nan,
        standard_deviation_before=before.standard_deviation if before.finite else math.nan,
        standard_deviation_now=now.standard_deviation if now.finite else math.nan,
        median_before=_median(before, whole=whole),
        median_now=_median(now, whole=whole),
    )


def _median(summary: FeatureSummary, *, whole: bool) -> float:
    distribution = summary.distribution(whole=whole)
    return distribution.quantiles(2)[1] if distribution else math.nan


def _rank(divergence: float) -> float:
    return -1.0 if math.isnan(divergence) else divergence


def jensen_shannon(before: Mapping[Any, int], now: Mapping[Any, int]) -> float:
    """Computes the Jensen-Shannon divergence of two histograms, in bits, 0 to 1; NaN of none."""
    p, q = _shares(before), _shares(now)
    if not p or not q:
        return math.nan
    terms = [
        share * math.log2(2 * share / (share + others.get(value, 0.0))) / 2
        for own, others in ((p, q), (q, p))
        for value, share in own.items()
    ]
    return max(math.fsum(terms), 0.0)  # below 0 by rounding


def _shares(counts: Mapping[Any, int]) -> dict[Any, float]:
    total = sum(counts.values())
    return {value: count / total for value, count in counts.items() if count}
