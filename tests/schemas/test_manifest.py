"""The manifest: its round trip, its versions, its conservation law and its file names."""

import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.manifest import (
    FORMAT_VERSION,
    Counts,
    FileChecksum,
    Manifest,
    Shard,
    Split,
    check_completed,
    completed_text,
    dealt_histogram,
    index_name,
    is_dataset_file,
    shard_name,
)
from schemas.receipt import Label, receipt_features

LABELS = (Label(name="total", type="float"), Label(name="currency", type="category"))


def shard(split: str, number: int, count: int, *, records: int, crc32c: int = 1) -> Shard:
    return Shard(
        name=shard_name(split, number, count),
        records=records,
        size_bytes=1000 * records,
        crc32c=crc32c,
        index_name=index_name(split, number, count),
        index_crc32c=2,
    )


MANIFEST = Manifest(
    features=receipt_features(LABELS),
    labels=LABELS,
    vocabularies={"layout": ("Bäcker €", "kiosk"), "currency": ("EUR",)},
    splits={
        "train": Split(
            shards=(shard("train", 0, 2, records=3), shard("train", 1, 2, records=2)),
            category_counts={"layout": (4, 1), "currency": (5,)},
        ),
        "test": Split(
            shards=(shard("test", 0, 1, records=1),),
            category_counts={"layout": (1, 0), "currency": (1,)},
        ),
    },
    counts=Counts(inputs=10, written=6, duplicates=1, quarantined={"corrupt": 2, "too_small": 1}),
    build_options={"seed": 7, "splits": {"train": 0.9, "test": 0.1}},
    source_fingerprint="ab" * 32,
    written_by="tillroll 0.1.0",
    files={"schema.pbtxt": FileChecksum(size_bytes=10, crc32c=7)},
)


def changed(**values: Any) -> str:
    """The manifest's text with other values at its top; None leaves a value out."""
    fields = json.loads(MANIFEST.to_json()) | values
    return json.dumps({name: value for name, value in fields.items() if value is not None})


def test_json_round_trip() -> None:
    again = Manifest.from_json(MANIFEST.to_json())
    assert again == MANIFEST
    assert again.to_json() == MANIFEST.to_json()
    assert Manifest.from_json(MANIFEST.to_json().encode()) == MANIFEST
    assert again.splits["train"].records == 5


def test_text_is_for_people_and_in_a_fixed_order() -> None:
    text = MANIFEST.to_json()
    assert text.endswith("}\n")
    assert '"Bäcker €"' in text
    assert list(json.loads(text)) == sorted(json.loads(text))
    turned = replace(
        MANIFEST,
        splits=dict(reversed(MANIFEST.splits.items())),
        vocabularies=dict(reversed(MANIFEST.vocabularies.items())),
    )
    assert turned.to_json() == text


def _with_crc(crc32c: int) -> Manifest:
    test = replace(MANIFEST.splits["test"], shards=(shard("test", 0, 1, records=1, crc32c=crc32c),))
    return replace(MANIFEST, splits={**MANIFEST.splits, "test": test})


@pytest.mark.parametrize(
    ("other", "same"),
    [
        pytest.param(replace(MANIFEST, written_by="tillroll 9"), True, id="another_writer"),
        pytest.param(Manifest.from_json(MANIFEST.to_json()), True, id="read_again"),
        pytest.param(_with_crc(1), True, id="same_checksum"),
        pytest.param(_with_crc(9), False, id="another_checksum"),
        pytest.param(
            replace(MANIFEST, splits={"train": MANIFEST.splits["train"]}), False, id="no_test_split"
        ),
    ],
)
def test_digest_tells_whether_the_records_are_the_same(other: Manifest, same: bool) -> None:
    assert len(MANIFEST.digest) == 64
    assert (other.digest == MANIFEST.digest) is same


def test_completed_belongs_to_the_bytes_of_one_manifest() -> None:
    text = MANIFEST.to_json().encode()
    completed = completed_text(text)
    assert completed == hashlib.sha256(text).hexdigest() + "\n"
    check_completed(completed.encode(), text)
    other = replace(MANIFEST, written_by="tillroll 9").to_json().encode()
    for wrong, manifest in (
        (completed, other),
        (completed.strip(), text),
        (completed + "\n", text),
        (MANIFEST.digest + "\n", text),
        ("", text),
    ):
        with pytest.raises(
            ValueError, match=r"^does not match COMPLETED: one of the two is damaged"
        ):
            check_completed(wrong.encode(), manifest)


def test_reads_this_version() -> None:
    assert Manifest.from_json(changed(format_version=FORMAT_VERSION)) == MANIFEST


def test_a_newer_version_is_refused() -> None:
    sentence = (
        f"the tillroll-dataset file has format version {FORMAT_VERSION + 1}, this tillroll reads "
        f"up to {FORMAT_VERSION}: install a newer tillroll, or build the dataset again"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Manifest.from_json(changed(format_version=FORMAT_VERSION + 1))


def test_a_newer_version_is_refused_even_if_nothing_else_is_known() -> None:
    with pytest.raises(ValueError, match="has format version 99, this tillroll reads up to"):
        Manifest.from_json('{"format": "tillroll-dataset", "format_version": 99}')


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut_off"),
        pytest.param(b"\xff\xfe", id="no_text"),
        pytest.param("3", id="number"),
        pytest.param("null", id="null"),
        pytest.param('"text"', id="string"),
        pytest.param("[]", id="list"),
        pytest.param("{}", id="no_format"),
        pytest.param(changed(format_version=None), id="no_version"),
        pytest.param(changed(format="other"), id="another_format"),
        pytest.param(changed(format_version="1"), id="version_is_text"),
        pytest.param(changed(format_version=0), id="version_is_none_yet"),
        pytest.param("[" * 100_000, id="deeply_nested"),
    ],
)
def test_refuses_what_is_no_manifest(text: str | bytes) -> None:
    with pytest.raises(
        ValueError, match=r"^not a tillroll-dataset file: .*; build the dataset again$"
    ):
        Manifest.from_json(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(changed(features=None), id="no_features"),
        pytest.param(changed(features=3), id="features_are_no_list"),
        pytest.param(changed(splits=[]), id="splits_are_no_object"),
        pytest.param(changed(splits={"train": {}}), id="split_without_shards"),
        pytest.param(changed(counts={}), id="no_counts"),
        pytest.param(changed(unheard_of=1), id="unknown_field"),
        pytest.param(changed(written_by=None), id="no_writer"),
        pytest.param(changed(splits={}), id="no_split"),
        pytest.param(changed(files={"schema.pbtxt": {"size_bytes": 1}}), id="file_has_no_checksum"),
        pytest.param(
            changed(files={"schema.pbtxt": {"size_bytes": 1, "crc32c": 2**32}}),
            id="checksum_is_big",
        ),
        pytest.param(
            changed(files={"../x": {"size_bytes": 1, "crc32c": 1}}), id="file_is_none_of_a_dataset"
        ),
        pytest.param(changed(vocabularies={}), id="no_vocabulary"),
        pytest.param(changed(labels=[]), id="no_label"),
    ],
)
def test_refuses_a_damaged_manifest(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"^damaged tillroll-dataset file: .*; build the dataset again$"
    ):
        Manifest.from_json(text)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        pytest.param(11, "11 inputs, but 6 written + 1 duplicates + 3 quarantined = 10", id="lost"),
        pytest.param(9, "9 inputs, but 6 written + 1 duplicates + 3 quarantined = 10", id="made"),
    ],
)
def test_counts_that_do_not_add_up(inputs: int, sentence: str) -> None:
    sentence = f"records were lost or made up: {sentence}; do not use this dataset"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        replace(MANIFEST.counts, inputs=inputs)


def test_counts_that_do_not_add_up_are_refused_in_a_file() -> None:
    counts = json.loads(MANIFEST.to_json())["counts"] | {"inputs": 11}
    with pytest.raises(ValueError, match="records were lost or made up: 11 inputs"):
        Manifest.from_json(changed(counts=counts))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(1, 17))
@settings(deadline=None, max_examples=150)
def test_dealt_histogram_is_that_of_dealing_one_by_one(counts: list[int], shards: int) -> None:
    layout_of_record = [layout for layout, count in enumerate(counts) for _ in range(count)]
    piles = [Counter(layout_of_record[pile::shards]) for pile in range(shards)]
    expected = [[pile[layout] for layout in range(len(counts))] for pile in piles]
    rows = [dealt_histogram(counts, shards=shards, shard=shard) for shard in range(shards)]
    histogram = np.stack(rows)
    assert histogram.dtype == np.int64
    assert histogram.tolist() == expected
    assert (abs(histogram - np.array(counts) / shards) < 1).all()
    assert np.ptp(histogram.sum(axis=1)) <= 1


def test_names_follow_tensorflow_datasets() -> None:
    assert shard_name("train", 7, 128) == "receipts-train.tfrecord-00007-of-00128"
    assert index_name("train", 7, 128) == "receipts-train.index-00007-of-00128"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("manifest.json", True),
        ("schema.pbtxt", True),
        ("statistics.pb", True),
        ("COMPLETED", True),
        ("excluded.json", True),
        (shard_name("dev_2", 0, 1), True),
        (index_name("dev_2", 123_456, 200_000), True),
        ("quarantine/rejected.tfrecord-00000-of-00001", True),
        ("quarantine/rejected.jsonl-00000-of-00001", True),
        ("duplicates/duplicates.jsonl-00000-of-00001", True),
        ("notes.txt", False),
        ("old/manifest.json", False),
        ("completed", False),
        ("quarantine/excluded.json", False),
        ("receipts-Train.tfrecord-00000-of-00001", False),
        ("receipts-train.tfrecord-0-of-1", False),
        ("receipts-train.tfrecord-00000-of-00001.bak", False),
        ("receipts-train.tfrecord-00000-of-00001\n", False),
        ("rejected.tfrecord-00000-of-00001", False),
        ("quarantine/duplicates.jsonl-00000-of-00001", False),
        ("", False),
    ],
)
def test_is_dataset_file(name: str, ours: bool) -> None:
    assert is_dataset_file(name) is ours
