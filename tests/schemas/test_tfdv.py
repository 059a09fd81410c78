"""The schema and statistics protos, read back with tensorflow-metadata."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from schemas.example import encode_example, parse_example
from schemas.receipt import Feature, Label, receipt_features
from schemas.statistics import RecordSummary
from schemas.tfdv import schema_text, statistics_bytes, value_counts

LABELS = (Label(name="total", type="float"), Label(name="currency", type="category"))
FEATURES = receipt_features(LABELS)
VOCABULARIES = {"layout": ["bäcker", "kiosk", "zoo"], "currency": ["CHF", "EUR"]}


def stored(features: Sequence[Feature], values: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """Values as a record holds them."""
    return parse_example(features, encode_example(features, values))


def record(**values: Any) -> dict[str, Any]:
    return {
        "image/encoded": b"12345",
        "image/format": "jpeg",
        "image/height": 100,
        "image/width": 50,
        "image/channels": 3,
        "image/source_id": "id",
        "image/key/sha256": "ab",
        "image/key/pixels": "cd",
        **{f"image/object/bbox/{side}": [] for side in ("xmin", "ymin", "xmax", "ymax")},
        "image/object/text": [],
        "receipt/group": "",
        "receipt/layout": "kiosk",
        "receipt/layout_id": 1,
        "receipt/total": 0.0,
        "receipt/currency": "EUR",
        "receipt/currency_id": 1,
    } | values


RECORDS = [
    record(**{"receipt/total": 3.0, "image/object/text": ["a", "bcd"]}),
    record(**{"receipt/total": 0.0, "image/encoded": b"1", "image/object/text": [""]}),
    record(**{"receipt/total": -3.0, "image/encoded": b"123"}),
]
COUNTS = {"layout": (1, 2, 0), "currency": (0, 3)}


@pytest.fixture(scope="module")
def schema() -> schema_pb2.Schema:
    return text_format.Parse(schema_text(FEATURES, VOCABULARIES), schema_pb2.Schema())


@pytest.fixture(scope="module")
def statistics() -> statistics_pb2.DatasetFeatureStatisticsList:
    summary = RecordSummary()
    for each in RECORDS:
        summary.add(stored(FEATURES, each))
    empty = (RecordSummary(), {"layout": (0, 0, 0), "currency": (0, 0)})
    data = statistics_bytes(FEATURES, {"train": (summary, COUNTS), "test": empty}, VOCABULARIES)
    return statistics_pb2.DatasetFeatureStatisticsList.FromString(data)


def entry(
    statistics: statistics_pb2.DatasetFeatureStatisticsList, split: int, name: str
) -> statistics_pb2.FeatureNameStatistics:
    [found] = [each for each in statistics.datasets[split].features if each.path.step == [name]]
    return found


def test_schema_has_every_feature_with_its_type(schema: schema_pb2.Schema) -> None:
    types = {
        "bytes": schema_pb2.BYTES,
        "string": schema_pb2.BYTES,
        "int64": schema_pb2.INT,
        "float32": schema_pb2.FLOAT,
    }
    found = [(each.name, each.type, each.annotation.comment[0]) for each in schema.feature]
    assert found == [(each.name, types[each.dtype], each.doc) for each in FEATURES]


def test_schema_tells_plain_features_from_ragged_ones(schema: schema_pb2.Schema) -> None:
    by_name = {each.name: each for each in schema.feature}
    for feature in FEATURES:
        found = by_name[feature.name]
        sizes = [dimension.size for dimension in found.shape.dim]
        assert sizes == ([] if feature.ragged else [1]), feature.name
        assert found.presence.min_fraction == (0.0 if feature.ragged else 1.0), feature.name
    assert any(feature.ragged for feature in FEATURES)


def test_schema_domains(schema: schema_pb2.Schema) -> None:
    by_name = {each.name: each for each in schema.feature}
    assert {each.name: list(each.value) for each in schema.string_domain} == VOCABULARIES
    assert by_name["receipt/layout"].domain == "layout"
    assert by_name["receipt/currency"].domain == "currency"
    codes = by_name["receipt/layout_id"].int_domain
    assert (codes.min, codes.max, codes.is_categorical) == (0, 2, True)
    corner = by_name["image/object/bbox/xmax"].float_domain
    assert (corner.min, corner.max) == (0.0, 1.0)
    assert not by_name["receipt/total"].WhichOneof("domain_info")


def test_schema_text_is_golden_for_a_category() -> None:
    [layout] = [each for each in FEATURES if each.name == "receipt/layout"]
    assert schema_text([layout], {"layout": ["bäcker"]}) == (
        "feature {\n"
        '  name: "receipt/layout"\n'
        "  type: BYTES\n"
        '  domain: "layout"\n'
        "  presence {\n    min_fraction: 1.0\n    min_count: 1\n  }\n"
        '  annotation {\n    comment: "category label"\n  }\n'
        "  shape {\n    dim {\n      size: 1\n    }\n  }\n"
        "}\n"
        'string_domain {\n  name: "layout"\n  value: "bäcker"\n}\n'
    )


def test_statistics_of_each_split(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
) -> None:
    assert [(each.name, each.num_examples) for each in statistics.datasets] == [
        ("train", 3),
        ("test", 0),
    ]
    for dataset in statistics.datasets:
        names = [list(each.path.step) for each in dataset.features]
        assert names == [[each.name] for each in FEATURES]


def test_statistics_of_numbers(statistics: statistics_pb2.DatasetFeatureStatisticsList) -> None:
    total = entry(statistics, 0, "receipt/total")
    assert total.type == statistics_pb2.FeatureNameStatistics.FLOAT
    found = total.num_stats
    assert (found.mean, found.min, found.max, found.num_zeros) == (0.0, -3.0, 3.0, 1)
    assert math.isclose(found.std_dev, float(np.std([3.0, 0.0, -3.0])))
    assert found.common_stats.num_non_missing == 3


def test_statistics_of_bytes(statistics: statistics_pb2.DatasetFeatureStatisticsList) -> None:
    encoded = entry(statistics, 0, "image/encoded")
    assert encoded.type == statistics_pb2.FeatureNameStatistics.BYTES
    found = encoded.bytes_stats
    assert (found.avg_num_bytes, found.min_num_bytes, found.max_num_bytes) == (3.0, 1.0, 5.0)
    assert found.max_num_bytes_int == 5


def test_statistics_of_ragged_texts(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
) -> None:
    text = entry(statistics, 0, "image/object/text").string_stats
    common = text.common_stats
    assert text.avg_length == pytest.approx(4 / 3)
    assert (common.tot_num_values, common.min_num_values, common.max_num_values) == (3, 0, 2)
    assert common.avg_num_values == 1.0


def test_statistics_rank_the_values_of_a_category(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
) -> None:
    layout = entry(statistics, 0, "receipt/layout").string_stats
    assert layout.unique == 2
    assert [(each.value, each.frequency) for each in layout.top_values] == [
        ("kiosk", 2.0),
        ("bäcker", 1.0),
    ]
    buckets = layout.rank_histogram.buckets
    assert [(each.low_rank, each.label, each.sample_count) for each in buckets] == [
        (0, "kiosk", 2.0),
        (1, "bäcker", 1.0),
    ]


def test_statistics_of_an_empty_split_are_numbers(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
) -> None:
    encoded = entry(statistics, 1, "image/encoded").bytes_stats
    assert (encoded.min_num_bytes, encoded.max_num_bytes, encoded.max_num_bytes_int) == (0, 0, 0)
    assert entry(statistics, 1, "receipt/total").num_stats.mean == 0.0
    assert not entry(statistics, 1, "receipt/layout").string_stats.top_values


def test_statistics_bytes_are_reproducible() -> None:
    def serialized() -> bytes:
        summary = RecordSummary()
        for each in RECORDS:
            summary.add(stored(FEATURES, each))
        return statistics_bytes(FEATURES, {"train": (summary, COUNTS)}, VOCABULARIES)

    assert len(serialized()) > 100
    assert serialized() == serialized()


def test_statistics_name_all_values_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"shop{number:03}" for number in range(150)]
    [layout] = [each for each in FEATURES if each.name == "receipt/layout"]
    summary = RecordSummary()
    for name in names:
        summary.add(stored([layout], {"receipt/layout": name}))

    def found() -> statistics_pb2.StringStatistics:
        data = statistics_bytes(
            [layout], {"train": (summary, {"layout": [1] * 150})}, {"layout": names}
        )
        [dataset] = statistics_pb2.DatasetFeatureStatisticsList.FromString(data).datasets
        return dataset.features[0].string_stats

    assert [each.value for each in found().top_values] == names
    assert [each.label for each in found().rank_histogram.buckets] == names
    monkeypatch.setattr("schemas.tfdv._MOST_VALUES", 100)
    assert [each.value for each in found().top_values] == names[:100]
    assert found().unique == 150


def test_histograms_of_numbers() -> None:
    [total] = [each for each in FEATURES if each.name == "receipt/total"]
    summary = RecordSummary()
    for number in range(1, 101):
        summary.add(stored([total], {"receipt/total": float(number)}))
    summary.add(stored([total], {"receipt/total": math.nan}))
    data = statistics_bytes([total], {"train": (summary, {})}, {})
    [dataset] = statistics_pb2.DatasetFeatureStatisticsList.FromString(data).datasets
    found = dataset.features[0].num_stats
    equal, deciles = found.histograms
    assert (equal.type, deciles.type) == (
        statistics_pb2.Histogram.STANDARD,
        statistics_pb2.Histogram.QUANTILES,
    )
    assert (equal.num_nan, deciles.num_nan) == (1, 1)
    assert len(equal.buckets) == len(deciles.buckets) == 10
    assert sum(each.sample_count for each in equal.buckets) == pytest.approx(100)
    for number, bucket in enumerate(equal.buckets):
        # Equal parts of 99, with about as many numbers each: a bin is up to 1.6 wide.
        assert bucket.low_value == pytest.approx(1 + 9.9 * number)
        assert bucket.sample_count == pytest.approx(10, abs=1.6)
    assert [each.sample_count for each in deciles.buckets] == [10.0] * 10
    assert (deciles.buckets[0].low_value, deciles.buckets[-1].high_value) == (1.0, 100.0)
    for number, bucket in enumerate(deciles.buckets, 1):
        assert bucket.high_value == pytest.approx(10 * number, rel=1 / 64)
    assert found.median == pytest.approx(50, rel=1 / 64)


def test_numbers_without_a_value_have_no_histogram(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
) -> None:
    assert not entry(statistics, 0, "image/object/bbox/xmin").num_stats.histograms
    assert not entry(statistics, 1, "receipt/total").num_stats.histograms
    assert entry(statistics, 0, "receipt/total").num_stats.histograms


def test_value_counts_are_read_back(
    statistics: statistics_pb2.DatasetFeatureStatisticsList,
) -> None:
    counts = value_counts(statistics.SerializeToString())
    assert counts["train"].keys() == {each.name for each in FEATURES}
    assert counts["train"]["image/object/text"] == 3  # one record has two, one has one
    assert counts["train"]["receipt/total"] == 3
    assert counts["train"]["image/encoded"] == 3
    assert counts["test"]["image/object/text"] == 0
    with pytest.raises(ValueError, match="not a DatasetFeatureStatisticsList"):
        value_counts(b"\xff\xff")
