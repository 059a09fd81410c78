"""Verify names every damaged file, and never ends with a traceback."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.verify import main, verify
from schemas.file_names import COMPLETED
from schemas.versions import Versions
from tests.support.dataset_files import EXCLUDED, MANIFEST
from tests.support.receipts import contents, read_table, write_receipts, write_table

FLIPS = 150


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, build) -> Path:
    """A dataset of seven records that has every kind of file: see `test_has_every_kind_of_file`."""
    folder = tmp_path_factory.mktemp("small")
    rows = read_table(write_receipts(folder / "in", {"s1": 4, "s2": 3}))
    (folder / "in" / "text.jpg").write_text("no image")
    rows += [
        {**rows[0], "id": "twin"},
        {**rows[1], "id": "text", "image": "text.jpg"},
        {**rows[1], "id": "gone", "image": "gone.jpg"},
    ]
    table = write_table(folder / "in" / "all.jsonl", rows)
    options = ("--shards=1", "--label=total:float", "--max-bad-fraction=0.5")
    assert build(table, folder / "out", *options) == 0
    return folder / "out"


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "copy"))


def flip(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one bit flipped."""
    position, bit = rng.randrange(len(data)), rng.randrange(8)
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def named(directory: Path) -> set[str]:
    """Names of the files that have faults, relative to the directory."""
    faults = list(verify(str(directory), workers=1))
    return {str(Path(fault.file).relative_to(directory)) for fault in faults}


def test_has_every_kind_of_file(small: Path):
    assert named(small) == set()
    assert list(contents(small)) == [
        "COMPLETED",
        "dataset_info.json",
        "features.json",
        "receipts-train-00000.idx",
        "receipts-train-00000.index.npz",
        "receipts-train-00000.lookup.npz",
        "receipts-train-00000.summary.json",
        "receipts-train-00000.tfrecord",
        "receipts-validation-00000.idx",
        "receipts-validation-00000.index.npz",
        "receipts-validation-00000.lookup.npz",
        "receipts-validation-00000.summary.json",
        "receipts-validation-00000.tfrecord",
        "versions/00001/duplicates/duplicates.jsonl-00000-of-00001",
        "versions/00001/manifest.json",
        "versions/00001/quarantine/rejected.jsonl-00000-of-00001",
        "versions/00001/quarantine/rejected.tfrecord-00000-of-00001",
        "versions/00001/schema.pbtxt",
        "versions/00001/statistics.pb",
        "versions/00001/summary.json",
    ]


@pytest.mark.parametrize("part", [".index.npz", "", MANIFEST, COMPLETED])
def test_every_flipped_bit_is_named(copy: Path, part: str):
    """One bit of every file at a time; of indexes apart, as they tell where records lie."""
    whole = contents(copy)
    if part:
        flipped = {name: data for name, data in whole.items() if part in name}
    else:
        apart = (".index.npz", MANIFEST, COMPLETED)
        flipped = {name: data for name, data in whole.items() if not any(a in name for a in apart)}
    assert flipped
    rng = random.Random(7)
    for _ in range(FLIPS):
        for name, data in flipped.items():
            (copy / name).write_bytes(flip(data, rng))
        assert flipped.keys() <= named(copy)


@pytest.mark.parametrize("harm", [b"", b"\n\n", None])
def test_replaced_and_missing_files_are_named(copy: Path, harm: bytes | None):
    others = [name for name in contents(copy) if name not in (MANIFEST, COMPLETED)]
    assert len(others) == 18
    for name in others:
        if harm is None:
            (copy / name).unlink()
        else:
            (copy / name).write_bytes(harm)
    assert named(copy) >= set(others)


def test_flips_of_excluded_json_change_no_more_than_what_people_read(copy: Path):
    """It is written after the manifest; its entries are compared with the manifest and indexes."""
    shard = copy / "receipts-train-00000.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 0
    text = (copy / EXCLUDED).read_bytes()
    [expected] = json.loads(text)["shards"][shard.name]
    rng = random.Random(8)
    silent = 0
    for _ in range(FLIPS):
        (copy / EXCLUDED).write_bytes(flip(text, rng))
        if not named(copy):
            [entry] = json.loads((copy / EXCLUDED).read_bytes())["shards"][shard.name]
            assert entry | {"fault": expected["fault"]} == expected
            silent += 1
    assert silent < FLIPS // 2


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values within a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a JSON value with another value at a path."""
    if not path:
        return new
    changed = value.copy()
    changed[path[0]] = replaced(value[path[0]], path[1:], new)
    return changed


FIRST = ("generations", 0)
ODD: list[Any] = [None, True, -1, 0, 7, 2**70, 0.5, "x", "\ud800", "../x", [], {}, [3], {"x": {}}]


@pytest.mark.parametrize("sealed", [True, False])
def test_no_manifest_ends_verify_with_a_traceback(copy: Path, capsys, sealed: bool):
    """Every value replaced by some odd one; sealed: even where COMPLETED says it is the build's."""
    values = json.loads((copy / MANIFEST).read_text())
    rng = random.Random(9)
    cases = [(place, odd) for place in places(values) if len(place) < 2 for odd in ODD]
    cases += [(place, rng.choice(ODD)) for place in places(values)]
    assert len(cases) > 200
    for place, odd in cases if sealed else cases[::4]:
        text = json.dumps(replaced(values, place, odd))
        (copy / MANIFEST).write_text(text)
        if sealed:
            (copy / COMPLETED).write_bytes(Versions.first(text.encode()).to_bytes())
        status = main([str(copy), "--quiet", "--workers=1"])
        printed = capsys.readouterr()
        assert status == bool(printed.err), (place, odd)
        if not sealed:
            assert printed.out.startswith(f"{copy / MANIFEST}: does not match COMPLETED: "), place


@pytest.mark.parametrize(
    ("place", "odd", "sentence"),
    [
        (("generations",), [], "the manifest has no generation"),
        ((*FIRST, "splits"), {}, "the manifest has no split"),
        (
            (*FIRST, "splits", "train", "shards", 0, "name"),
            3,
            "manifest.generations[0].splits.train.shards[0].name is 3, must be a string",
        ),
        (
            (*FIRST, "splits", "train", "shards", 0, "name"),
            "../x",
            "'../x' is not the name of a shard",
        ),
        (
            ("files",),
            {"../x": {"size_bytes": 1, "crc32c": 1}},
            "'../x' is not the name of a file of a dataset",
        ),
        (
            ("features", 0, "dtype"),
            "ift64",
            "manifest.features[0].dtype is 'ift64', must be one of bytes, string, int64, float32",
        ),
        (("labels",), [], "the manifest's features are not those of its labels"),
        ((*FIRST, "counts", "inputs"), -1, "-1 is not a number from 0 to 2**63 - 1"),
        ((*FIRST, "counts"), {}, "manifest.generations[0].counts has no 'duplicates'"),
        (
            (*FIRST, "written_by"),
            None,
            "manifest.generations[0].written_by is None, must be a string",
        ),
    ],
)
def test_a_damaged_manifest_gets_a_sentence(
    copy: Path, capsys, place: tuple[Any, ...], odd: Any, sentence: str
):
    values = json.loads((copy / MANIFEST).read_text())
    text = json.dumps(replaced(values, place, odd))
    (copy / MANIFEST).write_text(text)
    (copy / COMPLETED).write_bytes(Versions.first(text.encode()).to_bytes())
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    assert capsys.readouterr().out == (
        f"{copy / MANIFEST}: damaged tillroll-dataset file: {sentence}; build the dataset again\n"
    )
