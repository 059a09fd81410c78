"""The check of one shard: which faults are its records', and which are the whole file's."""

import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

pytest.importorskip("apache_beam")

from beam_jobs.verification.shard import Fault, check_shard
from schemas.excluded import ExcludedRecord
from tests.support.dataset_files import (
    EXCLUDED,
    INDEX,
    SHARD,
    change_shard,
    entry,
    flip,
    index_of,
    manifest_of,
    offset_of,
    payload_of,
    replace_payload,
)

pytestmark = pytest.mark.slow

CHECKSUM = "has another checksum than in the manifest"


def check(directory: Path, entries: list[ExcludedRecord], *, exclude: bool) -> list[Fault]:
    manifest = manifest_of(directory)
    shard = manifest.splits["train"].shards[2]
    return check_shard(str(directory), manifest, shard, entries, exclude=exclude).faults


def test_the_check_of_a_shard_does_not_grow_with_the_vocabulary(dataset: Path):
    """Each shard of a large dataset has a check, which is kept or sent to another process."""
    manifest = manifest_of(dataset)
    unused = tuple(f"unused{number}" for number in range(200_000))
    split = manifest.splits["train"]
    counts = {**split.category_counts, "layout": split.category_counts["layout"] + (0,) * 200_000}
    [generation] = manifest.generations
    large = replace(
        manifest,
        vocabularies={**manifest.vocabularies, "layout": manifest.vocabularies["layout"] + unused},
        generations=(
            replace(generation, splits={"train": replace(split, category_counts=counts)}),
        ),
    )
    checks = [
        check_shard(str(dataset), each, split.shards[2], (), exclude=False)
        for each in (manifest, large)
    ]
    assert checks[1].faults == []
    assert pickle.dumps(checks[1]) == pickle.dumps(checks[0])


def replace_record(directory: Path, record: int, old: bytes, new: bytes) -> None:
    """Changes a text in a record whose frame stays whole."""
    payload = payload_of(directory, record)
    assert payload.count(old) == 1
    replace_payload(directory, record, payload.replace(old, new))


def change_index(directory: Path, *, seal: bool) -> None:
    """Gives record 3 another height; `seal` makes that the build's own index."""
    index = index_of(directory)
    index.height[3] += 1
    data = replace(index).to_bytes()
    (directory / INDEX).write_bytes(data)
    if seal:
        change_shard(directory, index_crc32c=google_crc32c.value(data))


def cut(directory: Path, record: int) -> None:
    """Ends the shard inside a record."""
    data = (directory / SHARD).read_bytes()
    (directory / SHARD).write_bytes(data[: offset_of(directory, record) + 5])


@pytest.mark.parametrize(
    ("harm", "excluded", "exclude", "whole_file", "records", "excludable"),
    [
        # Damaged records, before and while they are excluded: only then is the checksum excused.
        pytest.param(
            lambda d: flip(d / SHARD, 200), (), False, [CHECKSUM], [0], True, id="payload"
        ),
        pytest.param(lambda d: flip(d / SHARD, 200), (), True, [], [0], True, id="excluding"),
        pytest.param(lambda d: flip(d / SHARD, 200), (0,), False, [], [], True, id="excluded"),
        pytest.param(
            lambda d: [flip(d / SHARD, offset_of(d, each)) for each in (1, 4)],
            (1,),
            False,
            [],
            [4],
            True,
            id="one of two lengths is excluded",
        ),
        pytest.param(lambda d: None, (3,), False, [], [], True, id="a valid record by hand"),
        # A change that no record's own checks see: the checksum stands while all of them pass.
        pytest.param(
            lambda d: replace_record(d, 3, b"l2", b"X2"),
            (),
            True,
            [CHECKSUM],
            [],
            True,
            id="another text",
        ),
        pytest.param(
            lambda d: replace_record(d, 3, b"l2", b"X2"),
            (4,),
            False,
            [CHECKSUM],
            [],
            True,
            id="another text, and a valid record is excluded",
        ),
        # A record of an undamaged shard is not at fault, and without the build's own index nothing
        # tells where records lie.
        pytest.param(
            lambda d: change_index(d, seal=True),
            (),
            True,
            [f"contradicts the undamaged shard {SHARD}: record 3 has image/height 160, its index "],
            [],
            True,
            id="row disagrees",
        ),
        pytest.param(
            lambda d: change_index(d, seal=False),
            (),
            True,
            [CHECKSUM],
            [],
            False,
            id="row of another index disagrees",
        ),
        # A cut shard: what lies before the cut is read by its offset.
        pytest.param(lambda d: cut(d, -1), (), False, ["has ", CHECKSUM], [-1], True, id="cut"),
        pytest.param(lambda d: cut(d, -1), (), True, [], [-1], True, id="cut, excluding"),
        pytest.param(lambda d: cut(d, -2), (-1,), False, [], [-2], True, id="cut, half excluded"),
        pytest.param(
            lambda d: (d / SHARD).write_bytes((d / SHARD).read_bytes() + b"12345"),
            (3,),
            True,
            ["has ", CHECKSUM, "holds 5 bytes after the last record of its index"],
            [],
            True,
            id="longer",
        ),
    ],
)
def test_when_the_checksum_of_a_whole_shard_stands(
    copy: Path,
    harm: Callable[[Path], object],
    excluded: tuple[int, ...],
    exclude: bool,
    whole_file: list[str],
    records: list[int],
    excludable: bool,
):
    size = len(index_of(copy))
    entries = [entry(copy, each % size) for each in excluded]
    harm(copy)
    faults = check(copy, entries, exclude=exclude)
    of_files = [each.message for each in faults if each.record is None]
    of_records = [each for each in faults if each.record is not None]
    assert len(of_files) == len(whole_file)
    assert all(map(str.startswith, of_files, whole_file)), of_files
    assert [each.record for each in of_records] == [each % size for each in records]
    assert all(each.excludable is excludable for each in of_records)


@pytest.mark.parametrize("exclude", [True, False])
def test_a_shard_without_a_valid_record_is_another_file(copy: Path, exclude: bool):
    shutil.copy(copy / SHARD.replace("00002", "00001"), copy / SHARD)
    faults = check(copy, [], exclude=exclude)
    assert [each.record for each in faults if each.record is not None] == list(
        range(len(index_of(copy)))
    )
    assert not any(each.excludable for each in faults)
    sentence = "holds no valid record: restore it from a copy, or build the dataset again"
    assert sentence in [each.message for each in faults if each.record is None]


def test_an_entry_that_names_another_record_is_a_fault(copy: Path):
    index = index_of(copy)
    wrong = replace(entry(copy, 3), id="alpha-99", offset=7)
    assert [str(each) for each in check(copy, [wrong], exclude=False)] == [
        f"{copy / EXCLUDED}: leaves out record 3 of {SHARD} as id 'alpha-99' at byte 7, the index "
        f"has id {index.id(3)!r} at byte {index.offset[3]} there"
    ]
