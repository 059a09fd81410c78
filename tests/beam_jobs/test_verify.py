"""Verify names every fault by file, record and byte offset."""

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest

pytest.importorskip("apache_beam")

import beam_jobs.verification.exclude
from beam_jobs.storage import files
from beam_jobs.verification.shard import Fault, check_shard
from beam_jobs.verification.side_files import check_files
from beam_jobs.verify import main, verify
from schemas.example import decode_example, encode_example
from schemas.excluded import Excluded, ExcludedRecord
from schemas.index import RecordIndex
from schemas.manifest import COMPLETED, EXCLUDED, MANIFEST, STATISTICS, Manifest, completed_text
from schemas.tfrecord import frame, unframe
from tests.support.receipts import contents

pytestmark = pytest.mark.slow

SHARD = "receipts-train.tfrecord-00002-of-00004"
INDEX = "receipts-train.index-00002-of-00004"


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def offset_of(directory: Path, record: int) -> int:
    return int(RecordIndex.from_bytes((directory / INDEX).read_bytes()).offset[record])


def change_manifest(directory: Path, change: Callable[[dict], None]) -> None:
    """Changes the manifest as if the build had written it so."""
    values = json.loads((directory / MANIFEST).read_text())
    change(values)
    write_manifest(directory, json.dumps(values))


def write_manifest(directory: Path, text: str) -> None:
    (directory / MANIFEST).write_text(text)
    (directory / COMPLETED).write_text(completed_text(text.encode()))


def test_valid_directory(dataset: Path, capsys):
    assert main([str(dataset), "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert printed == (
        f"{dataset} is valid: 44 records in 8 shards, 7 layouts, each within one record of its "
        "fair share in every shard\n"
    )


def test_flipped_byte_is_named_by_file_record_and_offset(copy: Path, capsys):
    index = RecordIndex.from_bytes((copy / INDEX).read_bytes())
    flip(copy / SHARD, offset_of(copy, 3) + 200)
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    assert (
        f"{copy / SHARD}, record 3 at byte {index.offset[3]}: checksum of the record's bytes is "
        f"wrong (id {index.id(3)!r})\n"
    ) in printed.out
    assert f"{copy / SHARD}: has another checksum than in the manifest\n" in printed.out
    assert printed.err == f"{copy} has 2 faults: --exclude leaves out 1 damaged record\n"
    assert not (copy / EXCLUDED).exists()


def without_last_layout(values: dict) -> None:
    """Takes the last layout, which then has no record, out of the vocabulary."""
    values["vocabularies"]["layout"].pop()
    for split in values["splits"].values():
        split["category_counts"]["layout"].pop()


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        pytest.param(
            lambda d: (d / COMPLETED).unlink(),
            "COMPLETED: is not there: the dataset is not finished, build it again",
            id="not completed",
        ),
        pytest.param(
            lambda d: (d / COMPLETED).write_text("0" * 64),
            "manifest.json: does not match COMPLETED: one of the two is damaged, or another "
            "version of tillroll wrote them; restore both from a copy, or build the dataset again",
            id="completed for another",
        ),
        pytest.param(
            lambda d: write_manifest(d, "{}"),
            "manifest.json: not a tillroll-dataset file",
            id="no manifest",
        ),
        pytest.param(
            lambda d: change_manifest(d, lambda v: v["counts"].update(inputs=99)),
            "manifest.json: damaged tillroll-dataset file: records were lost or "
            "made up: 99 inputs, but 44 written",
            id="counts do not add up",
        ),
        pytest.param(
            lambda d: change_manifest(d, lambda v: v["vocabularies"]["layout"].pop()),
            "manifest.json: damaged tillroll-dataset file: split 'train' counts values of "
            "the categories",
            id="vocabulary is short",
        ),
        pytest.param(
            lambda d: change_manifest(d, without_last_layout),
            "manifest.json: has 6 values of layout, receipts-train.index-00003-of-00004 has "
            "positions beyond them",
            id="vocabulary and counts are short",
        ),
        pytest.param(lambda d: (d / SHARD).unlink(), f"{SHARD}: can't be read", id="shard is gone"),
        pytest.param(
            lambda d: (d / SHARD).write_bytes((d / SHARD).read_bytes()[:-9]),
            ": file ends inside a record",
            id="shard is cut",
        ),
        pytest.param(
            lambda d: (d / SHARD).write_bytes((d / SHARD).read_bytes() + b"12345"),
            f"{SHARD}: holds 5 bytes after the last record of its index",
            id="shard is longer",
        ),
        pytest.param(
            lambda d: (d / INDEX).write_bytes(b"PK"),
            f"{INDEX}: has another checksum than in the manifest",
            id="index is broken",
        ),
        pytest.param(
            lambda d: shutil.copy(d / INDEX.replace("00002-of", "00001-of"), d / INDEX),
            f"{INDEX}: has another checksum than in the manifest",
            id="index of another shard",
        ),
        pytest.param(
            lambda d: shutil.copy(d / SHARD, d / "receipts-train.tfrecord-00007-of-00009"),
            "receipts-train.tfrecord-00007-of-00009: is not in the manifest",
            id="stale shard",
        ),
        pytest.param(
            lambda d: (d / STATISTICS).write_bytes(b"\xff\xff"),
            "statistics.pb: has 2 bytes, the manifest says ",
            id="statistics are broken",
        ),
        pytest.param(
            lambda d: (d / EXCLUDED).write_text("{}"),
            "excluded.json: not a tillroll-excluded file",
            id="excluded is broken",
        ),
        pytest.param(
            lambda d: (d / EXCLUDED).write_text(Excluded(dataset_digest="ab").to_json()),
            "excluded.json: belongs to the dataset with digest ab, the manifest beside it has ",
            id="excluded from another",
        ),
        pytest.param(
            lambda d: change_manifest(
                d,
                lambda v: v["splits"]["train"]["category_counts"].update(layout=[0] * 7),
            ),
            "manifest.json: layout counts of train differ from its records",
            id="counts of layouts",
        ),
    ],
)
def test_names_the_fault(copy: Path, capsys, harm: Callable[[Path], object], sentence: str):
    harm(copy)
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    assert sentence in capsys.readouterr().out


def test_the_check_of_a_shard_does_not_grow_with_the_vocabulary(dataset: Path):
    """Each shard of a large dataset has a check, which is kept or sent to another process."""
    manifest = manifest_of(dataset)
    unused = tuple(f"unused{number}" for number in range(200_000))
    split = manifest.splits["train"]
    counts = {**split.category_counts, "layout": split.category_counts["layout"] + (0,) * 200_000}
    large = replace(
        manifest,
        vocabularies={**manifest.vocabularies, "layout": manifest.vocabularies["layout"] + unused},
        splits={"train": replace(split, category_counts=counts)},
    )
    checks = [
        check_shard(str(dataset), each, "train", 2, (), exclude=False) for each in (manifest, large)
    ]
    assert checks[1].faults == []
    assert pickle.dumps(checks[1]) == pickle.dumps(checks[0])


def test_unfair_shard_is_a_fault(copy: Path, capsys):
    """Two shards that swap their names are whole, but not what was dealt."""

    def swap(values: dict) -> None:
        shards = values["splits"]["train"]["shards"]
        shards[0], shards[3] = shards[3], shards[0]

    change_manifest(copy, swap)
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    assert "its fair share is" in capsys.readouterr().out
    assert Manifest.from_json((copy / MANIFEST).read_text()).counts.written == 44


def manifest_of(directory: Path) -> Manifest:
    return Manifest.from_json((directory / MANIFEST).read_text())


def index_of(directory: Path) -> RecordIndex:
    return RecordIndex.from_bytes((directory / INDEX).read_bytes())


def entry(directory: Path, position: int, fault: str = "by hand") -> ExcludedRecord:
    index = index_of(directory)
    return ExcludedRecord(
        position=position, id=index.id(position), offset=int(index.offset[position]), fault=fault
    )


def test_exclude_leaves_out_damaged_records_and_no_others(copy: Path, capsys):
    """Payload, then a length, in two runs; then valid, though the shard's checksum is wrong."""
    index = index_of(copy)
    valid = (
        f"{copy} is valid: 44 records in 8 shards, 7 layouts, each within one record of its fair "
        "share in every shard\n"
    )

    def excluded(record: int, message: str) -> str:
        place = f"{copy / SHARD}, record {record} at byte {index.offset[record]}"
        return f"excluded {place}: {message} (id {index.id(record)!r})\n"

    flip(copy / SHARD, offset_of(copy, 3) + 200)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 0
    assert capsys.readouterr().out == (
        excluded(3, "checksum of the record's bytes is wrong")
        + valid
        + f"1 of these records is excluded: {copy / EXCLUDED} says why\n"
    )

    flip(copy / SHARD, offset_of(copy, 1))
    harmed = contents(copy)
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    place = f"{copy / SHARD}, record 1 at byte {index.offset[1]}"
    assert printed.out == (
        f"{place}: checksum of the record's length is wrong (id {index.id(1)!r})\n"
    )
    assert printed.err == f"{copy} has 1 fault: --exclude leaves out 1 damaged record\n"

    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 0
    last_line = f"2 of these records are excluded: {copy / EXCLUDED} says why\n"
    assert capsys.readouterr().out == (
        excluded(1, "checksum of the record's length is wrong") + valid + last_line
    )
    before = contents(copy)
    assert {name for name in before if before[name] != harmed[name]} == {EXCLUDED}
    assert json.loads(before[EXCLUDED]) == {
        "format": "tillroll-excluded",
        "format_version": 1,
        "dataset_digest": manifest_of(copy).digest,
        "shards": {
            SHARD: [
                entry(copy, 1, "checksum of the record's length is wrong").__dict__,
                entry(copy, 3, "checksum of the record's bytes is wrong").__dict__,
            ]
        },
    }
    assert main([str(copy), "--quiet", "--workers=1"]) == 0
    assert capsys.readouterr().out == valid + last_line
    assert contents(copy) == before


def test_exclude_says_what_it_cannot_exclude(copy: Path, capsys):
    """A damaged index stands; a damaged record of another shard is excluded all the same."""
    flip(copy / INDEX, (copy / INDEX).stat().st_size // 2)
    other = "receipts-train.tfrecord-00000-of-00004"
    flip(copy / other, 200)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    standing, excluded = printed.out.splitlines()
    assert standing == f"{copy / INDEX}: has another checksum than in the manifest"
    assert excluded.startswith(f"excluded {copy / other}, record 0 at byte 0: checksum of the ")
    assert printed.err == (
        f"{copy} has 1 fault that can't be excluded: restore the files named from a copy, or build "
        "the dataset again\n"
    )
    excluded = Excluded.from_json((copy / EXCLUDED).read_text(), manifest_of(copy))
    assert (len(excluded), excluded.positions(other)) == (1, (0,))


def test_exclusions_that_can_not_be_written_are_no_exclusions(copy: Path, capsys, monkeypatch):
    def refuse(path: str, data: bytes) -> None:
        raise PermissionError(f"{path} is on a read-only disk")

    flip(copy / SHARD, 200)
    monkeypatch.setattr(beam_jobs.verification.exclude.files, "write", refuse)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"error: {copy / EXCLUDED} could not be written, so nothing more is exc" in printed.err
    assert "is on a read-only disk" in printed.err


@pytest.mark.parametrize("sealed", [True, False])
def test_a_damaged_vocabulary_costs_no_record(copy: Path, capsys, sealed: bool):
    """One byte of the manifest is wrong: all shards are as the build wrote them."""
    text = (copy / MANIFEST).read_text()
    assert text.count('"alpha"') == 1
    text = text.replace('"alpha"', '"alphb"')
    if sealed:
        write_manifest(copy, text)
    else:
        (copy / MANIFEST).write_text(text)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    if not sealed:
        assert lines.pop(0).startswith(f"{copy / MANIFEST}: does not match COMPLETED: one of the ")
    assert len(lines) == 6  # two shards have no record of this layout
    assert all(
        line.startswith(f"{copy / MANIFEST}: contradicts the undamaged shard receipts-")
        and "says layout 'alpha', but receipt/layout_id 0 is 'alphb'" in line
        for line in lines
    ), lines
    assert printed.err == (
        f"{copy} has {6 + (not sealed)} faults that can't be excluded: restore the files "
        "named from a copy, or build the dataset again\n"
    )
    assert not (copy / EXCLUDED).exists()


@pytest.mark.parametrize("name", [MANIFEST, COMPLETED])
def test_nothing_is_excluded_by_a_manifest_that_can_not_be_trusted(copy: Path, capsys, name: str):
    """A damaged record is named, and is excluded once manifest and COMPLETED are restored."""
    whole = (copy / name).read_bytes()
    flip(copy / SHARD, 200)
    (copy / name).write_bytes(whole + b"\n")
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{copy / MANIFEST}: does not match COMPLETED: ")
    assert second == f"{copy / SHARD}: has another checksum than in the manifest"
    assert third.startswith(f"{copy / SHARD}, record 0 at byte 0: checksum of the record's bytes ")
    assert not (copy / EXCLUDED).exists()
    (copy / name).write_bytes(whole)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 0
    assert (copy / EXCLUDED).exists()


def test_a_damaged_list_of_exclusions_is_not_replaced(copy: Path, capsys):
    (copy / EXCLUDED).write_text("{}")
    flip(copy / SHARD, 200)
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{copy / EXCLUDED}: not a tillroll-excluded file: ")
    assert lines[-1].startswith(f"{copy / SHARD}, record 0 at byte 0: checksum of ")
    assert (copy / EXCLUDED).read_text() == "{}"


def test_a_rebuild_takes_the_exclusions_away(copy: Path, dataset: Path, table: Path, build):
    """Even one of the same digest: its records are whole again."""
    excluded = Excluded(dataset_digest=manifest_of(copy).digest)
    text = excluded.adding(SHARD, [entry(copy, 3)]).to_json()
    (copy / EXCLUDED).write_text(text)
    labels = ("--label", "total:float", "--label", "language:category")
    assert build(table, copy, "--shards", "4", *labels, "--overwrite") == 0
    assert contents(copy) == contents(dataset)


def replace_record(directory: Path, record: int, old: bytes, new: bytes) -> None:
    """Changes a record to one whose frame is whole."""
    index = index_of(directory)
    start = int(index.offset[record])
    end = start + int(index.length[record])
    data = (directory / SHARD).read_bytes()
    payload = unframe(data[start:end], start)
    assert payload.count(old) == 1
    assert len(old) == len(new)
    framed = frame(payload.replace(old, new))
    (directory / SHARD).write_bytes(data[:start] + framed + data[end:])


def change_index(directory: Path, *, seal: bool) -> None:
    """Gives record 3 another height; `seal` makes that the build's own index."""
    index = index_of(directory)
    index.height[3] += 1
    data = replace(index).to_bytes()
    (directory / INDEX).write_bytes(data)
    if seal:
        change_manifest(
            directory,
            lambda v: v["splits"]["train"]["shards"][2].update(
                index_crc32c=google_crc32c.value(data)
            ),
        )


def cut(directory: Path, record: int) -> None:
    """Ends the shard inside a record."""
    data = (directory / SHARD).read_bytes()
    (directory / SHARD).write_bytes(data[: offset_of(directory, record) + 5])


CHECKSUM = "has another checksum than in the manifest"


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


def check(directory: Path, entries: list[ExcludedRecord], *, exclude: bool) -> list[Fault]:
    return check_shard(
        str(directory), manifest_of(directory), "train", 2, entries, exclude=exclude
    ).faults


@pytest.mark.parametrize("exclude", [True, False])
def test_a_shard_without_a_valid_record_is_another_file(copy: Path, exclude: bool):
    shutil.copy(copy / SHARD.replace("00002-of", "00001-of"), copy / SHARD)
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


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["/data", "--workers=0"], "--workers must be at least 1, got 0"),
        (["/data", "--worker=1"], "unknown argument --worker"),
        (["ftp://host/data"], "Unable to get filesystem from specified path"),
    ],
)
def test_errors_of_the_command(capsys, arguments: list[str], sentence: str):
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_listing_that_can_t_be_read_is_a_fault(copy: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: str, offset: int, length: int) -> bytes:
        raise OSError(f"{path} could not be read")

    monkeypatch.setattr("beam_jobs.storage.checksums.files.read_range", refuse)
    assert [str(each) for each in check_files(str(copy), manifest_of(copy))] == [
        f"{copy / name}: can't be read: {copy / name} could not be read"
        for name in ("schema.pbtxt", "statistics.pb")
    ]


def test_reads_shards_and_lists_in_pieces(dataset: Path, monkeypatch: pytest.MonkeyPatch):
    """Only the manifest, COMPLETED and the indexes are read as a whole."""
    read_range, pieces = files.read_range, set()

    def record(path: str, offset: int, length: int) -> bytes:
        if length == 5000:
            pieces.add(Path(path).name)
        else:
            assert ".index-" in path or path.endswith((MANIFEST, COMPLETED))
        return read_range(path, offset, length)

    monkeypatch.setattr("beam_jobs.storage.checksums._PIECE_BYTES", 5000)
    monkeypatch.setattr(files, "read_range", record)
    assert list(verify(str(dataset), workers=1)) == []
    whole = {name for name in contents(dataset) if ".index-" not in name}
    assert pieces == whole - {MANIFEST, COMPLETED}


def store_image(directory: Path, record: int, encoded: bytes) -> None:
    """Makes a record as if the build had stored these bytes, as many as before, as its image."""
    manifest = manifest_of(directory)
    index = index_of(directory)
    start = int(index.offset[record])
    end = start + int(index.length[record])
    data = (directory / SHARD).read_bytes()
    values = decode_example(manifest.features, unframe(data[start:end], start))
    values["image/encoded"] = encoded
    values["image/key/sha256"] = hashlib.sha256(encoded).hexdigest()
    framed = frame(encode_example(manifest.features, values))
    assert len(framed) == end - start
    data = data[:start] + framed + data[end:]
    (directory / SHARD).write_bytes(data)
    change_manifest(
        directory,
        lambda v: v["splits"]["train"]["shards"][2].update(crc32c=google_crc32c.value(data)),
    )


def image_of(directory: Path, record: int) -> bytes:
    index = index_of(directory)
    start = int(index.offset[record])
    framed = (directory / SHARD).read_bytes()[start : start + int(index.length[record])]
    encoded = decode_example(manifest_of(directory).features, unframe(framed, start))
    assert isinstance(encoded["image/encoded"], bytes)
    return encoded["image/encoded"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (b"\xff\xc0", b"\xff\xc3", "lossless JPEG file: only baseline, extended and progressive "),
        (b"\xff\xd9", b"\xff\x00", "JPEG file without an end marker (FFD9)"),
    ],
)
def test_images_that_tensorflow_can_not_decode_are_excluded(
    copy: Path, capsys, old: bytes, new: bytes, sentence: str
):
    """They are damaged although every checksum is right."""
    encoded = image_of(copy, 3)
    assert encoded.count(old) == 1
    store_image(copy, 3, encoded.replace(old, new))
    assert main([str(copy), "--quiet", "--workers=1"]) == 1
    printed = capsys.readouterr()
    place = f"{copy / SHARD}, record 3 at byte {offset_of(copy, 3)}"
    assert printed.out.startswith(f"{place}: {sentence}")
    assert printed.err == f"{copy} has 1 fault: --exclude leaves out 1 damaged record\n"
    assert main([str(copy), "--exclude", "--quiet", "--workers=1"]) == 0
    assert main([str(copy), "--quiet", "--workers=1"]) == 0
    excluded = Excluded.from_json((copy / EXCLUDED).read_text(), manifest_of(copy))
    assert excluded.positions(SHARD) == (3,)


def test_help_says_what_exclude_does(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["--help"])
    assert exit_info.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "--exclude list damaged records in DIRECTORY/excluded.json" in words
