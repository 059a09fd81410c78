"""`schema.pbtxt` and `statistics.pb`, as TensorFlow Data Validation reads them."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from schemas.receipt import Feature, id_feature
from schemas.statistics import FeatureSummary, RecordSummary

_SCHEMA_TYPES = {
    "bytes": schema_pb2.BYTES,
    "string": schema_pb2.BYTES,
    "int64": schema_pb2.INT,
    "float32": schema_pb2.FLOAT,
}
_STATISTICS_TYPES = {
    "bytes": statistics_pb2.FeatureNameStatistics.BYTES,
    "string": statistics_pb2.FeatureNameStatistics.STRING,
    "int64": statistics_pb2.FeatureNameStatistics.INT,
    "float32": statistics_pb2.FeatureNameStatistics.FLOAT,
}
# 100,000 layouts with names of 13 characters make 6 MB per split, 20,000 make 1.2 MB.
_MOST_VALUES = 100_000
_HISTOGRAM_PARTS = 10  # of TensorFlow Data Validation, too


def schema_text(features: Sequence[Feature], vocabularies: Mapping[str, Sequence[str]]) -> str:
    """Makes the text of a tensorflow_metadata.v0.Schema; categories become string domains."""
    schema = schema_pb2.Schema()
    for category, values in vocabularies.items():
        schema.string_domain.add(name=category, value=values)
    sizes = {id_feature(category): len(values) for category, values in vocabularies.items()}
    for feature in features:
        entry = schema.feature.add(name=feature.name, type=_SCHEMA_TYPES[feature.dtype])
        entry.presence.min_fraction = 1.0
        entry.annotation.comment.append(feature.doc)
        if feature.ragged:
            # To TensorFlow Data Validation, a feature without values is missing; a receipt may have
            # no boxes.
            entry.presence.min_fraction = 0.0
        else:
            entry.shape.dim.add(size=1)
            entry.presence.min_count = 1
        category = feature.name.removeprefix("receipt/")
        if category in vocabularies:
            entry.domain = category
        elif feature.name in sizes:
            entry.int_domain.min = 0
            entry.int_domain.max = sizes[feature.name] - 1
            entry.int_domain.is_categorical = True
        elif feature.name.startswith("image/object/bbox/"):
            entry.float_domain.min = 0.0
            entry.float_domain.max = 1.0
    return text_format.MessageToString(schema, as_utf8=True)


def statistics_bytes(
    features: Sequence[Feature],
    splits: Mapping[str, tuple[RecordSummary, Mapping[str, Sequence[int]]]],
    vocabularies: Mapping[str, Sequence[str]],
) -> bytes:
    """Makes a serialized tensorflow_metadata.v0.DatasetFeatureStatisticsList, a dataset per split.

    Args:
      features: the features of a record.
      splits: split name to the summary of its records and, by category, the number of records
        with each value.
      vocabularies: category name to its values.
    """
    statistics = statistics_pb2.DatasetFeatureStatisticsList()
    for split, (summary, counts) in splits.items():
        dataset = statistics.datasets.add(name=split)
        for feature in features:
            seen = summary.features.get(feature.name, FeatureSummary())
            dataset.num_examples = max(dataset.num_examples, seen.records)
            entry = dataset.features.add(type=_STATISTICS_TYPES[feature.dtype])
            entry.path.step.append(feature.name)
            category = feature.name.removeprefix("receipt/")
            if feature.dtype == "string":
                target = entry.string_stats
                target.avg_length = seen.mean
                if category in vocabularies:
                    _add_ranks(target, vocabularies[category], counts[category])
            elif feature.dtype == "bytes":
                target = entry.bytes_stats
                target.avg_num_bytes = seen.mean
                target.min_num_bytes = seen.minimum if seen.values else 0.0
                target.max_num_bytes = seen.maximum if seen.values else 0.0
                target.max_num_bytes_int = int(seen.maximum) if seen.values else 0
            else:
                target = entry.num_stats
                _add_numbers(target, seen, whole=feature.dtype == "int64")
            _add_common(target.common_stats, seen)
    return statistics.SerializeToString(deterministic=True)


def value_counts(data: bytes) -> dict[str, dict[str, int]]:
    """Reads from `statistics.pb`, by split and feature, the number of values in all records.

    Raises:
      ValueError: the bytes are not statistics.
    """
    try:
        statistics = statistics_pb2.DatasetFeatureStatisticsList.FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a DatasetFeatureStatisticsList: {error}") from error
    counts: dict[str, dict[str, int]] = {}
    for dataset in statistics.datasets:
        counts[dataset.name] = {}
        for feature in dataset.features:
            kind = feature.WhichOneof("stats")
            if kind is not None:
                values = getattr(feature, kind).common_stats.tot_num_values
                counts[dataset.name][feature.path.step[0]] = values
    return counts


def _add_common(target: statistics_pb2.CommonStatistics, seen: FeatureSummary) -> None:
    target.num_non_missing = seen.records
    target.tot_num_values = seen.values
    target.min_num_values = seen.min_values
    target.max_num_values = seen.max_values
    target.avg_num_values = seen.values / seen.records if seen.records else 0.0


def _add_numbers(
    target: statistics_pb2.NumericStatistics, seen: FeatureSummary, *, whole: bool
) -> None:
    distribution = seen.distribution(whole=whole)
    if distribution is None:
        return
    target.mean = seen.mean
    target.std_dev = seen.standard_deviation
    target.num_zeros = seen.zeros
    target.min = seen.minimum
    target.max = seen.maximum
    target.median = distribution.quantiles(2)[1]
    equal = target.histograms.add(type=statistics_pb2.Histogram.STANDARD, num_nan=seen.not_finite)
    for span in distribution.equal_widths(_HISTOGRAM_PARTS):
        equal.buckets.add(low_value=span.low, high_value=span.high, sample_count=span.count)
    deciles = target.histograms.add(
        type=statistics_pb2.Histogram.QUANTILES, num_nan=seen.not_finite
    )
    for low, high in pairwise(distribution.quantiles(_HISTOGRAM_PARTS)):
        share = distribution.total / _HISTOGRAM_PARTS
        deciles.buckets.add(low_value=low, high_value=high, sample_count=share)


def _add_ranks(
    target: statistics_pb2.StringStatistics, values: Sequence[str], counts: Sequence[int]
) -> None:
    target.unique = sum(count > 0 for count in counts)
    # Values of equal counts by name: equal counts make equal bytes.
    ranked = sorted(zip(counts, values, strict=True), key=lambda pair: (-pair[0], pair[1]))
    for rank, (count, value) in enumerate(ranked[:_MOST_VALUES]):
        if count:
            target.top_values.add(value=value, frequency=count)
            target.rank_histogram.buckets.add(
                low_rank=rank, high_rank=rank, label=value, sample_count=count
            )
