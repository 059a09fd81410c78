"""Random histories of a dataset, whose files are read by code of their own after each step."""

import json
import random
import shutil
import signal
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("tensorflow")

from beam_jobs import build, compact, forget
from tests.fuzz.cases import random_cases
from tests.fuzz.random_rows import RandomRows, Row
from tests.fuzz.truth import Record, Version, check_no_strays, read_versions
from tests.support.kills import Change, exit_code_at
from tests.support.receipts import contents

_LABELS = ("--label=total:float", "--label=shop:category", "--label=payer:string")
_LEFT_OUT = ("rejected.jsonl", "duplicates.jsonl")
_LISTINGS = (*_LEFT_OUT, "near_duplicates.jsonl")
_IDS = ("id", "duplicate_of", "near_duplicate_of")
_STEPS = 6


def test_random_histories(tmp_path: Path):
    for number, rng in enumerate(random_cases(1)):
        history = _History(rng, tmp_path / str(number))
        for _ in range(_STEPS):
            history.go_on()


class _History:
    """A dataset directory, and what its commands were given so far."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.directory = folder / "dataset"
        (folder / "images").mkdir(parents=True)
        self.rows = RandomRows(rng, folder / "images")
        self.layout_from = rng.choice(["column", "column", "none", "text"])
        self.encoding = rng.choice(["jpeg", "jpeg", "raw"])
        self.options = (
            *_LABELS,
            f"--splits={rng.choice(['train=0.9,validation=0.1', 'a=0.5,b=0.3,c=0.2'])}",
            f"--shards={rng.choice([1, 2, 5])}",
            f"--seed={rng.randrange(3)}",
            f"--near-duplicates={rng.choice(['group', 'drop', 'off'])}",
            f"--layout-from={self.layout_from}",
            f"--encoding={self.encoding}",
            *(("--raw-size=24x24",) if self.encoding == "raw" else ()),
        )
        self.versions: dict[int, Version] = {}
        self.files: dict[str, bytes] = {}

    @property
    def newest(self) -> Version:
        return self.versions[max(self.versions)]

    def go_on(self) -> None:
        """Runs a random command, and checks what it has made of the dataset."""
        steps = [self.append, self.append, self.forget]
        if self.versions and len(self.newest.manifest["generations"]) > 1:
            steps.append(self.compact)
        step = self.rng.choice(steps) if self.versions else self.begin
        print(step.__name__, self.options)
        step()

    def begin(self) -> None:
        """Builds the dataset."""
        self._build(self.rng.choice([30, 60]), *self.options)

    def append(self) -> None:
        """Adds receipts, of which some are there."""
        self._build(self.rng.choice([3, 15, 40]), "--append")

    def compact(self) -> None:
        """Makes one generation of all."""
        before = self.newest
        shards = self.rng.choice([(), ("--shards=1",), ("--shards=4",)])
        self._run(compact, str(self.directory), *shards)
        self._read()
        assert self.newest.records.keys() == before.records.keys()
        for id_, record in before.records.items():
            assert self.newest.records[id_].features == record.features
            assert self.newest.records[id_].split == record.split

    def forget(self) -> None:
        """Forgets some receipts, or all of a layout."""
        before = self.newest
        layouts = {id_: record.text("receipt/layout") for id_, record in before.records.items()}
        layout = self.rng.choice(sorted(set(layouts.values())))
        of_layout = [id_ for id_ in layouts if layouts[id_] == layout]
        lines = self._lines(self.files, _LISTINGS)
        listed = {line[name] for line in lines for name in _IDS if line.get(name)}
        in_table = listed & {row["id"] for row in self.rows.made}  # the others have no id
        ids = sorted(self.rng.choice([layouts, layouts, of_layout, in_table or layouts]))
        forgotten = self.rng.sample(ids, min(len(ids), self.rng.choice([1, 2, 5, 40])))
        file = self.folder / "ids.txt"
        file.write_text("".join(f"{id_}\n" for id_ in forgotten))
        self._run(forget, str(self.directory), f"--ids={file}")
        self._read(may_change=True)
        for version in self.versions.values():
            assert not version.records.keys() & set(forgotten)
        assert self.newest.records.keys() == before.records.keys() - set(forgotten)
        for id_, record in self.newest.records.items():
            assert record.split == before.records[id_].split
        for id_ in forgotten:
            payers = {row["payer"] for row in self.rows.made if row["id"] == id_}
            for trace in (id_, json.dumps(id_)[1:-1], *payers):
                named = [name for name, data in self.files.items() if trace.encode() in data]
                assert not named, f"{trace} is left in {named}"

    def _lines(self, files: Iterable[str], listings: tuple[str, ...]) -> Iterator[dict[str, str]]:
        """Yields the lines of those of the files that are such listings of inputs."""
        for name in files:
            if name.rpartition("/")[2].startswith(listings):
                yield from map(json.loads, self.files[name].splitlines())

    def _build(self, count: int, *options: str) -> None:
        rows = self.rows.table(count)
        table = self.folder / "images" / "table.jsonl"
        as_ascii = self.rng.random() < 0.5
        table.write_text("".join(json.dumps(row, ensure_ascii=as_ascii) + "\n" for row in rows))
        paths = (f"--input={table}", f"--output={self.directory}")
        self._run(build, *paths, "--max-bad-fraction=0.9", *options)
        number_before = max(self.versions, default=0)
        self._read()
        # None are new if all receipts were there, two if the first command was killed at its end.
        for number in range(number_before + 1, max(self.versions) + 1):
            self._check_inputs(rows, number)

    def _run(self, command: ModuleType, *arguments: str) -> None:
        """Runs a command, which may be killed and run again, or run on a copy with two workers."""
        options = [*arguments, "--quiet", "--workers=1"]
        event = self.rng.random()
        if event < 0.3:
            action = self.rng.choice(["create", "rename", "remove"])
            change = Change(action, "*", self.rng.randint(1, 40))
            code = exit_code_at(change, command.__name__, options, self.directory)
            print("exit status", code, "at", change)
            if code == 0:
                return  # there were fewer changes
            assert code == -signal.SIGKILL
        twin = self.folder / "twin"
        if event > 0.8 and self.versions:
            shutil.copytree(self.directory, twin)
        assert command.main(options) == 0
        if twin.exists():
            on_twin = [text.replace(str(self.directory), str(twin)) for text in arguments]
            assert command.main([*on_twin, "--quiet", "--workers=2"]) == 0
            assert contents(twin) == contents(self.directory)
            shutil.rmtree(twin)

    def _check_inputs(self, rows: Sequence[Row], number: int) -> None:
        """Checks that a version accounts for each row once, and that records are as their rows."""
        earlier = self.versions[number - 1].records if number > 1 else {}
        records = self.versions[number].records
        generation = self.versions[number].manifest["generations"][-1]
        assert earlier.keys() <= records.keys()
        assert generation["counts"]["inputs"] == len(rows)
        left_out = Counter(line["id"] for line in self._lines(generation["files"], _LEFT_OUT))
        fresh = records.keys() - earlier.keys()
        known = 0
        for id_, times in Counter(row["id"] for row in rows).items():
            unexplained = times - left_out[id_] - (id_ in fresh)
            assert unexplained >= 0, f"{id_} is listed too often"
            assert id_ in earlier or not unexplained, f"{id_} has vanished"
            known += unexplained
        assert generation["counts"]["known"] == known
        for id_ in fresh:
            assert any(self._is_row(records[id_], row) for row in rows if row["id"] == id_), id_

    def _is_row(self, record: Record, row: Row) -> bool:
        """Compares a record with a row of its id."""
        if row["total"] == "much" or ("layout" not in row and self.layout_from == "column"):
            return False
        single = struct.unpack("f", struct.pack("f", row["total"]))[0]
        texts = [text.decode() for text in record.features["image/object/text"]]
        is_row = record.features["receipt/total"] == [single]
        is_row &= texts == [box["text"] for box in row["boxes"]]
        is_row &= record.text("receipt/group") == row["group"]
        for name in ("shop", "payer", *(("layout",) if self.layout_from == "column" else ())):
            is_row &= record.text(f"receipt/{name}") == row[name]
        if self.encoding == "jpeg" and row["image"].endswith(".jpg"):
            image = (self.folder / "images" / row["image"]).read_bytes()
            is_row &= record.features["image/encoded"] == [image]
        return bool(is_row)

    def _read(self, *, may_change: bool = False) -> None:
        """Reads the dataset anew, and compares it with how it was before the last command."""
        files = {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in self.directory.rglob("*")
            if path.is_file()
        }
        versions = read_versions(self.directory)
        check_no_strays(self.directory, versions)
        for number, version in self.versions.items():
            if may_change:
                continue
            assert number in versions
            for name in version.files & self.files.keys():
                assert files[name] == self.files[name], f"{name} of version {number} has changed"
        self._check_vocabularies(versions)
        self.files, self.versions = files, versions

    def _check_vocabularies(self, versions: Mapping[int, Version]) -> None:
        """Checks that a value keeps its number, unless nobody has it any more."""
        if not self.versions:
            return
        numbers = max(versions), max(self.versions)
        newest, before = (
            mapping[number].manifest["vocabularies"]
            for mapping, number in zip((versions, self.versions), numbers, strict=True)
        )
        for category, values in before.items():
            assert len(set(newest[category])) == len(newest[category])
            for value, now in zip(values, newest[category], strict=False):
                assert now == value or now.startswith("forgotten-"), (category, value, now)
