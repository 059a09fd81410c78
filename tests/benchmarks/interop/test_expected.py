"""The comparison of what a reader gives with the records of a directory, with planted faults."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.interop.expected import IMAGE, PIXELS, Expected, compare, pixels, splits
from schemas.file_names import shard_name
from tests.support.dataset_factory import HEIGHT, LAYOUTS, WIDTH, write_dataset

Record = dict[str, Any]
RECORDS = sum(LAYOUTS.values())


@pytest.fixture
def expected(directory: Path) -> Expected:
    return Expected.of(directory, "train")


def given(expected: Expected) -> list[Record]:
    """The records as most readers give them: arrays, single values without a list."""
    features = {feature.name: feature for feature in expected.manifest.features}
    return [
        {PIXELS: pixels(values)}
        | {
            name: np.array(stored, object) if features[name].ragged else stored[0]
            for name, stored in values.items()
        }
        for values in expected.records.values()
    ]


def test_records_lie_in_the_order_of_the_shards(expected: Expected) -> None:
    assert len(expected.records) == RECORDS
    assert [path.name for path in expected.shards] == [shard_name("train", at) for at in range(4)]
    # Record i of all layouts, one after the other, is in shard i mod 4: 0, 4, 8, ..., 28, 1, 5, ...
    assert list(expected.part(6, 10)) == ["beta-24", "beta-28", "alpha-1", "alpha-5"]
    first = next(iter(expected.records.values()))
    assert first["receipt/layout"] == [b"alpha"]
    assert pixels(first).shape == (HEIGHT, WIDTH, 3)


def test_only_splits_with_records(directory: Path) -> None:
    assert [each.split for each in splits(directory)] == ["train"]


def test_all_is_right(expected: Expected) -> None:
    found = compare(expected.records, reversed(given(expected)))
    assert found.faults == ()
    assert found.expected == found.read == found.images == found.boxes == RECORDS
    assert found.labels == 3 * RECORDS  # group, layout, and its id


def test_a_decoded_image_stands_for_the_file_but_a_file_is_compared(expected: Expected) -> None:
    decoded = [{k: v for k, v in record.items() if k != IMAGE} for record in given(expected)]
    assert compare(expected.records, decoded).faults == ()
    stored = [{k: v for k, v in record.items() if k != PIXELS} for record in given(expected)]
    found = compare(expected.records, stored)
    assert (found.images, found.faults) == (0, ())
    neither = [{k: v for k, v in record.items() if k != IMAGE} for record in stored]
    assert len(compare(expected.records, neither).faults) == RECORDS


def change(name: str, value: Callable[[Any], Any]) -> Callable[[list[Record]], None]:
    def plant(records: list[Record]) -> None:
        records[5][name] = value(records[5][name])

    return plant


def leave_out_a_feature(records: list[Record]) -> None:
    del records[5]["receipt/layout_id"]


def leave_out_a_record(records: list[Record]) -> None:
    del records[5]


def read_twice(records: list[Record]) -> None:
    records[5] = records[6]


def read_another(records: list[Record]) -> None:
    records[5] = records[5] | {"image/source_id": b"nobody"}


@pytest.mark.parametrize(
    ("plant", "sentences", "right"),
    [
        (change("receipt/layout", lambda _: b"omega"), ["layout is [b'omega'], should"], (0, 0, 1)),
        (change("receipt/layout_id", lambda at: at + 1), ["receipt/layout_id is [2]"], (0, 0, 1)),
        (change("image/object/bbox/ymax", lambda at: at * 2), ["bbox/ymax is [1.6"], (0, 1, 0)),
        (change("image/object/text", lambda _: []), ["text is [], should"], (0, 0, 0)),
        (change(IMAGE, lambda data: data[:-1]), ["image/encoded is [b"], (0, 0, 0)),
        (change(PIXELS, lambda at: at // 2), ["the image is 108.8 levels"], (1, 0, 0)),
        (change(PIXELS, lambda at: at[:, :-1]), ["the image is uint8 (60, 39, 3)"], (1, 0, 0)),
        (change(PIXELS, lambda at: at / 255), ["the image is float64 (60, 40, 3)"], (1, 0, 0)),
        (leave_out_a_feature, ["receipt/layout_id was not read"], (0, 0, 1)),
        (leave_out_a_record, ["was not read"], (1, 1, 3)),
        (read_twice, ["was read 2 times", "was not read"], (0, 0, 0)),
        (read_another, ["nobody was read, and is not among", "was not read"], (1, 1, 3)),
    ],
)
def test_a_fault_is_found(
    expected: Expected,
    plant: Callable[[list[Record]], None],
    sentences: list[str],
    right: tuple[int, int, int],
) -> None:
    records = given(expected)
    plant(records)
    found = compare(expected.records, records)
    assert len(found.faults) == len(sentences)
    for fault, sentence in zip(found.faults, sentences, strict=True):
        assert sentence in fault
    missing = (RECORDS - found.images, RECORDS - found.boxes, 3 * RECORDS - found.labels)
    assert missing == right


def test_features_may_be_left_out_by_name(expected: Expected) -> None:
    records = given(expected)
    for record in records:
        del record["image/object/text"]
    assert len(compare(expected.records, records).faults) == RECORDS
    assert compare(expected.records, records, without=["image/object/text"]).faults == ()


def test_raw_pixels(tmp_path: Path) -> None:
    expected = Expected.of(write_dataset(tmp_path / "raw", raw=True, gray=True), "train")
    assert pixels(next(iter(expected.records.values()))).shape == (HEIGHT, WIDTH, 1)
    assert compare(expected.records, given(expected)).faults == ()


def test_shards_with_other_records_than_the_manifest_says(tmp_path: Path) -> None:
    directory = write_dataset(tmp_path / "receipts")
    shards = [directory / shard_name("train", number) for number in range(2)]
    shards[0].write_bytes(shards[1].read_bytes())
    with pytest.raises(ValueError, match="holds 32 records of 24 ids, its manifest says 32"):
        Expected.of(directory, "train")
