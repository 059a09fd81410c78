"""A folder of broken and odd files: each ends where it should, and the counts add up."""

import io
import json
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.verify import verify
from schemas.example import decode_example
from schemas.file_names import version_file
from schemas.quarantine import REJECTED_FEATURES
from schemas.tfrecord import read_records
from tests.support.dataset_files import manifest_of
from tests.support.odd_files import DUPLICATE, TWINS, WRITTEN, Case, cases, write_cases
from tests.support.pictures import difference


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, build) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    options = ("--label=total:float", "--max-side=100", "--max-input-mb=1", "--shards=2")
    table = write_cases(folder / "in")
    assert build(table, folder / "out", "--max-bad-fraction=1", "--splits=train=1", *options) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def fates(built: Path) -> dict[str, tuple[str, dict]]:
    """Maps each id to what became of it, and to the record or listing that tells so."""
    manifest = manifest_of(built)
    found: dict[str, tuple[str, dict]] = {}
    for shard in manifest.splits["train"].shards:
        with (built / shard.name).open("rb") as file:
            for _, payload in read_records(file):
                record = decode_example(manifest.features, payload)
                found[record["image/source_id"]] = (WRITTEN, record)
    for path in sorted((built / version_file(1, "quarantine")).glob("rejected.tfrecord-*")):
        with path.open("rb") as file:
            for _, payload in read_records(file):
                record = decode_example(REJECTED_FEATURES, payload)
                name = record["id"]
                name = f"{name}, again" if record["reason"] == "duplicate_id" else name
                found[name] = (record["reason"], record)
    for path in (built / version_file(1, "duplicates")).glob("*"):
        for entry in map(json.loads, path.read_text().splitlines()):
            found[entry["id"]] = (DUPLICATE, entry)
    return found


@pytest.mark.parametrize("case", [pytest.param(case, id=case.kind) for case in cases()])
def test_ends_where_it_should(case: Case, fates):
    known_by_id = case.line is None and "id" not in case.row
    if known_by_id or case.fate == "duplicate_id":
        fate, record = fates[case.kind]
    else:  # the row has no id of its own: find it by its text
        text = (case.line or b"").decode(errors="surrogateescape").strip()
        needle = text.encode(errors="backslashreplace").decode() or case.name
        [(fate, record)] = [
            (reason, record)
            for reason, record in fates.values()
            if reason == case.fate and (needle in record["source"] or needle in record["uri"])
        ]
    for twins in TWINS:
        if case.kind in twins:  # which of them is kept follows from the hashes of their ids
            ends = Counter(fates[kind][0] for kind in twins)
            assert ends == {WRITTEN: 1, DUPLICATE: len(twins) - 1}
            return
    assert fate == case.fate, record
    if fate == WRITTEN and case.shape:
        assert tuple(record[f"image/{s}"] for s in ("height", "width", "channels")) == case.shape
    if case.drawn:
        with Image.open(io.BytesIO(record["image/encoded"])) as image:
            shown = image.convert("RGB")
        drawn = case.drawn.convert("RGB").resize(shown.size, Image.Resampling.LANCZOS)
        # Drawn pictures differ from each other by 80 of 255, and from their negatives.
        assert difference(shown, drawn) < 12
    if fate not in (WRITTEN, DUPLICATE):
        assert record["message"]
        kept = b"" if fate == "file_too_large" else (case.data or b"")
        assert record["bytes"] == kept


def test_counts_add_up(built: Path):
    counts = manifest_of(built).counts
    expected = Counter(case.fate for case in cases())
    assert counts.inputs == len(cases()) >= 50
    assert counts.written == expected.pop(WRITTEN)
    assert counts.duplicates == expected.pop(DUPLICATE) == 3
    assert counts.quarantined == expected
    assert counts.clipped_boxes == 1


def test_quarantine_is_listed_for_people(built: Path):
    lines = [
        json.loads(line)
        for path in (built / version_file(1, "quarantine")).glob("rejected.jsonl-*")
        for line in path.read_text().splitlines()
    ]
    rejected = [case for case in cases() if case.fate not in (WRITTEN, DUPLICATE)]
    assert sorted(line["reason"] for line in lines) == sorted(case.fate for case in rejected)


def test_verifies(built: Path):
    assert list(verify(str(built), workers=1)) == []
