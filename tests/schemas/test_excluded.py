"""excluded.json: its round trip, its order, and what it refuses."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.excluded import FORMAT_VERSION, Excluded, ExcludedRecord
from schemas.manifest import Manifest, Shard
from tests.support.dataset_files import manifest_of

FIRST, SECOND = "receipts-train-00000.tfrecord", "receipts-train-00001.tfrecord"
ANEW = "delete it, and run python -m beam_jobs.verify DIRECTORY --exclude again"


@pytest.fixture(scope="module")
def manifest(directory: Path) -> Manifest:
    """The manifest of a dataset with eight records in each of four shards."""
    return manifest_of(directory)


def record(position: int, *, fault: str = "a fault", **values: Any) -> ExcludedRecord:
    fields = {"position": position, "id": f"Bäcker-{position}", "offset": 900 * position}
    return ExcludedRecord(**fields | {"fault": fault} | values)


def some(manifest: Manifest) -> Excluded:
    empty = Excluded(dataset_digest=manifest.digest)
    return empty.adding(SECOND, [record(7), record(0)]).adding(FIRST, [record(2)])


def changed(manifest: Manifest, **values: Any) -> str:
    """The file's text with other values at its top; None leaves a value out."""
    fields = json.loads(some(manifest).to_json()) | values
    return json.dumps({name: value for name, value in fields.items() if value is not None})


def rows(*positions: int, **values: Any) -> list[dict[str, Any]]:
    return [record(position).__dict__ | values for position in positions]


def test_positions_are_ascending(manifest: Manifest):
    assert some(manifest).positions(SECOND) == (0, 7)
    assert some(manifest).positions(FIRST) == (2,)
    assert some(manifest).positions("receipts-train-00002.tfrecord") == ()
    assert len(some(manifest)) == 3
    assert len(Excluded(dataset_digest=manifest.digest)) == 0


def test_json_round_trip(manifest: Manifest):
    text = some(manifest).to_json()
    assert Excluded.from_json(text, manifest) == some(manifest)
    assert Excluded.from_json(text.encode(), manifest).to_json() == text
    assert '"id": "Bäcker-7"' in text
    assert text.endswith("}\n")


def test_text_does_not_depend_on_who_was_excluded_first(manifest: Manifest):
    empty = Excluded(dataset_digest=manifest.digest)
    other = empty.adding(FIRST, [record(2)]).adding(SECOND, [record(0)]).adding(SECOND, [record(7)])
    assert other.to_json() == some(manifest).to_json()
    by_hand = json.loads(some(manifest).to_json())
    by_hand["shards"] = {SECOND: rows(7, 0), FIRST: rows(2)}
    assert Excluded.from_json(json.dumps(by_hand), manifest).to_json() == other.to_json()


def test_what_is_excluded_already_stays_as_it_is(manifest: Manifest):
    again = some(manifest).adding(FIRST, [record(2, fault="another"), record(3, fault="new")])
    assert [each.fault for each in again.shards[FIRST]] == ["a fault", "new"]
    assert some(manifest).adding(FIRST, []) == some(manifest)
    assert Excluded(dataset_digest="").adding(FIRST, []).shards == {}


def test_a_newer_version_is_refused_even_if_nothing_else_is_known(manifest: Manifest):
    sentence = (
        f"the tillroll-excluded file has format version {FORMAT_VERSION + 1}, this tillroll reads "
        f"up to {FORMAT_VERSION}: install a newer tillroll, or "
    )
    text = json.dumps({"format": "tillroll-excluded", "format_version": FORMAT_VERSION + 1})
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}{ANEW}$"):
        Excluded.from_json(text, manifest)


def test_another_dataset_is_refused(manifest: Manifest):
    train = manifest.splits["train"]
    shards: tuple[Shard, ...] = (replace(train.shards[0], crc32c=1), *train.shards[1:])
    [generation] = manifest.generations
    changed_generation = replace(generation, splits={"train": replace(train, shards=shards)})
    other = replace(manifest, generations=(changed_generation,))
    sentence = (
        f"belongs to the dataset with digest {manifest.digest}, the manifest beside it has "
        f"{other.digest}: {ANEW}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Excluded.from_json(some(manifest).to_json(), other)


@pytest.mark.parametrize(
    ("shards", "sentence"),
    [
        pytest.param(
            {"receipts-dev-00000.tfrecord": rows(0)},
            "leaves out records of 'receipts-dev-00000.tfrecord', which is not a "
            "shard of this dataset",
            id="no such shard",
        ),
        pytest.param(
            {FIRST: rows(8)},
            f"leaves out record 8 of {FIRST}, whose records are 0 to 7",
            id="behind the last",
        ),
        pytest.param(
            {FIRST: rows(-1)},
            f"leaves out record -1 of {FIRST}, whose records are 0 to 7",
            id="before the first",
        ),
        pytest.param(
            {FIRST: rows(1, 2, 1)}, f"leaves out a record of {FIRST} more than once", id="repeated"
        ),
    ],
)
def test_places_that_are_not_there(manifest: Manifest, shards: dict, sentence: str):
    with pytest.raises(ValueError, match=f"^{re.escape(f'{sentence}: {ANEW}')}$"):
        Excluded.from_json(changed(manifest, shards=shards), manifest)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"format": None}, id="no format"),
        pytest.param({"format": "tillroll-dataset"}, id="another format"),
        pytest.param({"format_version": None}, id="no version"),
        pytest.param({"format_version": "1"}, id="version is text"),
    ],
)
def test_refuses_what_is_no_such_file(manifest: Manifest, values: dict):
    sentence = rf"^not a tillroll-excluded file: .*; {ANEW}$"
    with pytest.raises(ValueError, match=sentence):
        Excluded.from_json(changed(manifest, **values), manifest)


@pytest.mark.parametrize("text", ["", "{", b"\xff\xfe", "3", "null", '"text"', "[]", "{}"])
def test_refuses_what_is_no_object(manifest: Manifest, text: str | bytes):
    with pytest.raises(ValueError, match=rf"^not a tillroll-excluded file: .*; {ANEW}$"):
        Excluded.from_json(text, manifest)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"dataset_digest": None}, id="no digest"),
        pytest.param({"shards": None}, id="no shards"),
        pytest.param({"shards": [1]}, id="shards are a list"),
        pytest.param({"shards": {FIRST: 3}}, id="records are a number"),
        pytest.param({"shards": {FIRST: [{"position": 1}]}}, id="no offset"),
        pytest.param({"shards": {FIRST: rows(1, note="x")}}, id="unknown field"),
        pytest.param({"shards": {FIRST: rows(1, offset="9")}}, id="offset is text"),
        pytest.param({"shards": {FIRST: [record(1).__dict__ | {"position": True}]}}, id="bool"),
    ],
)
def test_refuses_a_damaged_file(manifest: Manifest, values: dict):
    sentence = rf"^damaged tillroll-excluded file: .*; {ANEW}$"
    with pytest.raises(ValueError, match=sentence):
        Excluded.from_json(changed(manifest, **values), manifest)
