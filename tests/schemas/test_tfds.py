"""Description of a directory for TensorFlow Datasets; `make interop` reads it with that library."""

import json
from dataclasses import replace
from typing import Any

import pytest

from schemas.file_names import shard_name
from schemas.manifest import Counts, Generation, Manifest, Shard, Split
from schemas.receipt import Label, receipt_features
from schemas.tfds import tfds_files

LABELS = (Label(name="total", type="float"), Label(name="currency", type="category"))
JPEG = {"encoding": "jpeg", "raw_size": [256, 256], "channels": None}


def shard(number: int, records: int) -> Shard:
    return Shard(
        name=shard_name("train", number),
        records=records,
        size_bytes=100 * records,
        crc32c=0,
        index_crc32c=0,
        lookup_crc32c=0,
        summary_crc32c=0,
        dali_index_crc32c=0,
    )


def manifest(*shards: Shard, **image: Any) -> Manifest:
    records = sum(one.records for one in shards)
    split = Split(shards=shards, category_counts={"layout": (records, 0), "currency": (records,)})
    generation = Generation(
        version=1,
        splits={"train": split},
        counts=Counts(inputs=records, written=records, duplicates=0, quarantined={}),
        build_options={"image": JPEG | image},
        source_fingerprint="",
        written_by="tests",
    )
    return Manifest(
        version=3,
        features=receipt_features(LABELS),
        labels=LABELS,
        vocabularies={"layout": ("a", "b"), "currency": ("EUR",)},
        generations=(generation,),
    )


def features(of: Manifest) -> dict[str, Any]:
    values = json.loads(tfds_files(of)["features.json"])
    return values["featuresDict"]["features"]


def info(of: Manifest) -> dict[str, Any]:
    return json.loads(tfds_files(of)["dataset_info.json"])


def test_numbers_that_a_version_does_not_have_are_empty_shards() -> None:
    made = info(manifest(shard(1, 5), shard(4, 2)))
    assert made["version"] == "3.0.0"
    assert made["splits"] == [
        {
            "name": "train",
            "filepathTemplate": "receipts-{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}",
            "shardLengths": ["0", "5", "0", "0", "2"],
            "numBytes": "700",
        }
    ]


def test_a_split_without_shards() -> None:
    assert info(manifest())["splits"][0]["shardLengths"] == []


def test_each_feature_of_a_record_has_a_connector() -> None:
    made = features(manifest())
    assert made.keys() == {feature.name for feature in receipt_features(LABELS)}
    assert made["receipt/currency_id"]["classLabel"] == {"numClasses": "1"}
    assert made["receipt/total"]["tensor"]["dtype"] == "float32"
    assert made["image/object/text"]["sequence"]["feature"]["text"] == {}
    assert "image" not in made["image/format"]


@pytest.mark.parametrize(("channels", "expected"), [(None, 3), (1, 1), (3, 3)])
def test_jpeg_files_are_decoded_to_one_number_of_channels(
    channels: int | None, expected: int
) -> None:
    image = features(manifest(channels=channels))["image/encoded"]["image"]
    assert image == {
        "dtype": "uint8",
        "encodingFormat": "jpeg",
        "shape": {"dimensions": ["-1", "-1", str(expected)]},
    }


def test_raw_pixels_have_one_shape() -> None:
    image = features(manifest(encoding="raw", raw_size=[60, 40], channels=1))["image/encoded"]
    assert image["tensor"] == {
        "dtype": "uint8",
        "encoding": "bytes",
        "shape": {"dimensions": ["60", "40", "1"]},
    }


def test_equal_manifests_give_equal_bytes() -> None:
    one = manifest(shard(0, 1))
    again = replace(one, vocabularies=dict(reversed(one.vocabularies.items())))
    assert tfds_files(one) == tfds_files(again)
