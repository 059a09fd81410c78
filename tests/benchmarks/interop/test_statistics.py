"""Statistics beside those of a library and of the records, with planted faults."""

from collections.abc import Callable
from typing import Any

import pytest
from tensorflow_metadata.proto.v0 import statistics_pb2

from benchmarks.interop.expected import Expected
from benchmarks.interop.statistics import by_name, category_counts, count, differences
from schemas.file_names import statistics_name
from schemas.receipt import Label
from tests.support.dataset_factory import LAYOUTS, write_dataset

RECORDS = sum(LAYOUTS.values())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    folder = tmp_path_factory.mktemp("statistics") / "receipts"
    return Expected.of(
        write_dataset(folder, labels=[Label(name="total", type="float")], without_boxes=["beta"]),
        "train",
    )


@pytest.fixture
def statistics(expected: Expected) -> Any:
    data = (expected.directory / statistics_name(1)).read_bytes()
    datasets = statistics_pb2.DatasetFeatureStatisticsList.FromString(data).datasets
    [own] = [dataset for dataset in datasets if dataset.name == "train"]
    return own


def test_records_boxes_and_values_are_counted(expected: Expected, statistics: Any) -> None:
    assert category_counts(by_name(statistics)["receipt/layout"]) == LAYOUTS
    found = count(statistics, expected.records)
    assert found.faults == ()
    assert found.expected == found.read == found.labels == RECORDS
    assert found.boxes == RECORDS - LAYOUTS["beta"]


def copied(statistics: Any) -> Any:
    return type(statistics).FromString(statistics.SerializeToString())


def test_equal_statistics_do_not_differ(statistics: Any) -> None:
    assert list(differences(statistics, copied(statistics))) == []


def set_number(key: str, factor: float) -> Callable[[Any], None]:
    def plant(statistics: Any) -> None:
        numbers = by_name(statistics)["receipt/total"].num_stats
        setattr(numbers, key, getattr(numbers, key) * factor)

    return plant


def set_records(statistics: Any) -> None:
    statistics.num_examples -= 1


def set_values(statistics: Any) -> None:
    common = by_name(statistics)["image/object/bbox/xmin"].num_stats.common_stats
    common.tot_num_values += 1


def set_layouts(statistics: Any) -> None:
    by_name(statistics)["receipt/layout"].string_stats.rank_histogram.buckets[0].sample_count += 1


def drop_layouts(statistics: Any) -> None:
    by_name(statistics)["receipt/layout"].string_stats.ClearField("rank_histogram")


def drop_feature(statistics: Any) -> None:
    del statistics.features[0]


def drop_histogram(statistics: Any) -> None:
    del by_name(statistics)["receipt/total"].num_stats.histograms[0]


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (set_records, "31 records, counted 32"),
        (set_number("mean", 1.0001), "the mean of receipt/total is "),
        (set_number("std_dev", 1.0001), "the std_dev of receipt/total is "),
        (set_number("max", 1.0001), "the max of receipt/total is "),
        (set_number("median", 1.05), "the median of receipt/total is "),
        (set_values, "image/object/bbox/xmin has 24 values, counted 23"),
        (set_layouts, "the counts of receipt/layout are "),
        (drop_feature, "features ["),
        (drop_histogram, "receipt/total has not both histograms"),
    ],
)
def test_a_difference_is_found(
    statistics: Any, plant: Callable[[Any], None], sentence: str
) -> None:
    counted = copied(statistics)
    plant(statistics)
    [found] = differences(statistics, counted)
    assert found.startswith(sentence)


def test_medians_are_estimates(statistics: Any) -> None:
    counted = copied(statistics)
    set_number("median", 1.02)(statistics)
    assert list(differences(statistics, counted)) == []


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (set_records, "31 records, there are 32"),
        (set_values, "24 boxes, there are 23"),
        (set_layouts, "the counts of receipt/layout are {'alpha': 21"),
        (drop_layouts, "layouts are not counted"),
    ],
)
def test_a_wrong_count_is_found(
    expected: Expected, statistics: Any, plant: Callable[[Any], None], sentence: str
) -> None:
    plant(statistics)
    [found] = count(statistics, expected.records).faults
    assert found.startswith(sentence)
