"""The manifest: its round trip, its generations, its conservation law."""

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.file_names import schema_name, shard_name, version_file
from schemas.manifest import (
    FORMAT_VERSION,
    Counts,
    FileChecksum,
    Generation,
    Manifest,
    Shard,
    Split,
    dealt_histogram,
)
from schemas.receipt import Label, receipt_features

LISTING = version_file(1, "duplicates/duplicates.jsonl-00000-of-00001")
LABELS = (Label(name="total", type="float"), Label(name="currency", type="category"))


def shard(split: str, number: int, *, records: int, crc32c: int = 1) -> Shard:
    return Shard(
        name=shard_name(split, number),
        records=records,
        size_bytes=1000 * records,
        crc32c=crc32c,
        index_crc32c=2,
        lookup_crc32c=0,
        summary_crc32c=0,
        dali_index_crc32c=3,
    )


GENERATION = Generation(
    version=1,
    splits={
        "train": Split(
            shards=(shard("train", 0, records=3), shard("train", 1, records=2)),
            category_counts={"layout": (4, 1), "currency": (5,)},
        ),
        "test": Split(
            shards=(shard("test", 0, records=1),),
            category_counts={"layout": (1, 0), "currency": (1,)},
        ),
    },
    counts=Counts(inputs=10, written=6, duplicates=1, quarantined={"corrupt": 2, "too_small": 1}),
    build_options={"seed": 7, "splits": {"train": 0.9, "test": 0.1}},
    source_fingerprint="ab" * 32,
    written_by="tillroll 0.1.0",
    files={LISTING: FileChecksum(size_bytes=20, crc32c=8)},
)
MANIFEST = Manifest(
    version=1,
    features=receipt_features(LABELS),
    labels=LABELS,
    vocabularies={"layout": ("Bäcker €", "kiosk"), "currency": ("EUR",)},
    generations=(GENERATION,),
    files={schema_name(1): FileChecksum(size_bytes=10, crc32c=7)},
)
MORE = {
    "train": replace(GENERATION.splits["train"], shards=(shard("train", 2, records=5),)),
    "test": GENERATION.splits["test"],
}
# One layout and one currency more, and a shard of each split.
APPENDED = Generation(
    version=2,
    splits={
        "train": Split(
            shards=(shard("train", 2, records=4),),
            category_counts={"layout": (1, 0, 3), "currency": (1, 3)},
        ),
        "test": Split(
            shards=(shard("test", 1, records=0),),
            category_counts={"layout": (0, 0, 0), "currency": (0, 0)},
        ),
    },
    counts=Counts(inputs=6, written=4, duplicates=0, quarantined={"corrupt": 1, "unreadable": 1}),
    source_fingerprint="cd" * 32,
    written_by="tillroll 0.2.0",
)
SECOND = Manifest(
    version=2,
    features=receipt_features(LABELS),
    labels=LABELS,
    vocabularies={"layout": ("Bäcker €", "kiosk", "Aral"), "currency": ("EUR", "CHF")},
    generations=(GENERATION, APPENDED),
)


def changed(**values: Any) -> str:
    """The manifest's text with other values at its top; None leaves a value out."""
    return _text(json.loads(MANIFEST.to_json()) | values)


def changed_generation(**values: Any) -> str:
    """The manifest's text with other values in its generation; None leaves a value out."""
    fields = json.loads(MANIFEST.to_json())
    fields["generations"] = [json.loads(_text(fields["generations"][0] | values))]
    return _text(fields)


def _text(fields: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in fields.items() if value is not None})


def test_json_round_trip() -> None:
    again = Manifest.from_json(MANIFEST.to_json())
    assert again == MANIFEST
    assert again.to_json() == MANIFEST.to_json()
    assert Manifest.from_json(MANIFEST.to_json().encode()) == MANIFEST
    assert again.splits["train"].records == 5


def test_a_version_has_the_records_of_all_its_generations() -> None:
    train = Manifest.from_json(SECOND.to_json()).splits["train"]
    assert [one.name for one in train.shards] == [shard_name("train", at) for at in range(3)]
    assert train.category_counts == {"layout": (5, 1, 3), "currency": (6, 3)}
    assert train.layout_counts.tolist() == [5, 1, 3]
    assert SECOND.splits["test"].category_counts["layout"] == (1, 0, 0)
    assert SECOND.counts == Counts(
        inputs=16,
        written=10,
        duplicates=1,
        quarantined={"corrupt": 3, "too_small": 1, "unreadable": 1},
    )
    assert SECOND.checksums.keys() == {LISTING}
    assert MANIFEST.checksums.keys() == {LISTING, schema_name(1)}


@pytest.mark.parametrize(
    ("generations", "sentence"),
    [
        pytest.param((), "the manifest has no generation", id="none"),
        pytest.param(
            (APPENDED, GENERATION),
            "split 'train' counts values of the categories {'layout': 2, 'currency': 1}",
            id="the_newest_knows_fewer_values",
        ),
        pytest.param(
            (GENERATION, replace(APPENDED, splits={"train": APPENDED.splits["train"]})),
            "generation 2 has the splits ['train'], must have ['train', 'test']",
            id="other_splits",
        ),
    ],
)
def test_generations_that_do_not_fit(generations: tuple[Generation, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        replace(SECOND, generations=generations)


def test_no_shard_comes_twice() -> None:
    twice = replace(SECOND, generations=(replace(GENERATION, splits=MORE), APPENDED))
    with pytest.raises(ValueError, match="the manifest names a shard more than once"):
        Manifest.from_json(twice.to_json())


def test_text_is_for_people_and_in_a_fixed_order() -> None:
    text = MANIFEST.to_json()
    assert text.endswith("}\n")
    assert '"Bäcker €"' in text
    assert list(json.loads(text)) == sorted(json.loads(text))
    generation = replace(GENERATION, splits=dict(reversed(GENERATION.splits.items())))
    turned = replace(
        MANIFEST,
        generations=(generation,),
        vocabularies=dict(reversed(MANIFEST.vocabularies.items())),
    )
    assert turned.to_json() == text


def _with(**values: Any) -> Manifest:
    """The manifest with other values in its generation."""
    return replace(MANIFEST, generations=(replace(GENERATION, **values),))


def _with_crc(crc32c: int) -> Manifest:
    test = replace(GENERATION.splits["test"], shards=(shard("test", 0, records=1, crc32c=crc32c),))
    return _with(splits={**GENERATION.splits, "test": test})


@pytest.mark.parametrize(
    ("other", "same"),
    [
        pytest.param(_with(written_by="tillroll 9"), True, id="another_writer"),
        pytest.param(Manifest.from_json(MANIFEST.to_json()), True, id="read_again"),
        pytest.param(_with_crc(1), True, id="same_checksum"),
        pytest.param(_with_crc(9), False, id="another_checksum"),
        pytest.param(
            _with(splits={"train": GENERATION.splits["train"]}), False, id="no_test_split"
        ),
        pytest.param(SECOND, False, id="appended"),
    ],
)
def test_digest_tells_whether_the_records_are_the_same(other: Manifest, same: bool) -> None:
    assert len(MANIFEST.digest) == 64
    assert (other.digest == MANIFEST.digest) is same


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
        pytest.param(changed_generation(splits=[]), id="splits_are_no_object"),
        pytest.param(changed_generation(splits={"train": {}}), id="split_without_shards"),
        pytest.param(changed_generation(counts={}), id="no_counts"),
        pytest.param(changed(unheard_of=1), id="unknown_field"),
        pytest.param(changed_generation(written_by=None), id="no_writer"),
        pytest.param(changed_generation(splits={}), id="no_split"),
        pytest.param(changed(files={schema_name(1): {"size_bytes": 1}}), id="file_has_no_checksum"),
        pytest.param(
            changed(files={schema_name(1): {"size_bytes": 1, "crc32c": 2**32}}),
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
        pytest.param(
            11,
            "11 inputs, but 5 written + 1 duplicates + 0 known + 3 quarantined + 1 forgotten = 10",
            id="lost",
        ),
        pytest.param(
            9,
            "9 inputs, but 5 written + 1 duplicates + 0 known + 3 quarantined + 1 forgotten = 10",
            id="made",
        ),
    ],
)
def test_counts_that_do_not_add_up(inputs: int, sentence: str) -> None:
    sentence = f"records were lost or made up: {sentence}; do not use this dataset"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        replace(GENERATION.counts, inputs=inputs, written=5, forgotten=1)


def test_counts_that_do_not_add_up_are_refused_in_a_file() -> None:
    counts = json.loads(MANIFEST.to_json())["generations"][0]["counts"] | {"inputs": 11}
    with pytest.raises(ValueError, match="records were lost or made up: 11 inputs"):
        Manifest.from_json(changed_generation(counts=counts))


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


def test_what_was_dealt_has_those_forgotten_since() -> None:
    train = GENERATION.splits["train"]
    shards = (
        replace(train.shards[0], forgotten=(0, 1, 1)),
        replace(train.shards[1], forgotten=(0,)),
    )
    left = replace(train, shards=shards)
    assert left.dealt_layout_counts.tolist() == [4 + 2, 1 + 2]
    assert train.dealt_layout_counts.tolist() == [4, 1]
    with pytest.raises(ValueError, match="has forgotten records of layout 2, there are 2"):
        replace(train, shards=(replace(train.shards[0], forgotten=(2,)),))
    splits = {**GENERATION.splits, "train": left}
    stored = replace(MANIFEST, generations=(replace(GENERATION, splits=splits),))
    assert Manifest.from_json(stored.to_json()) == stored


@pytest.mark.parametrize("names", [(), ("summary.json", "summary-00001.json")])
def test_a_generation_has_one_summary(names: tuple[str, ...]) -> None:
    listed = {version_file(1, name): FileChecksum(size_bytes=1, crc32c=1) for name in names}
    with pytest.raises(ValueError, match=f"generation 1 names {len(names)} summaries"):
        _ = replace(GENERATION, files=listed).summary_name


def test_the_files_of_a_version() -> None:
    names = MANIFEST.file_names
    assert {"versions/00001/manifest.json", "versions/00001/excluded.json", LISTING} < names
    assert {name for name in names if name.startswith("receipts-test")} == {
        f"receipts-test-00000{end}"
        for end in (".tfrecord", ".index.npz", ".lookup.npz", ".summary.json", ".idx")
    }
