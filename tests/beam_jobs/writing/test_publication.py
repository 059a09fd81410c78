"""Replacing a dataset may be killed at any step: what is left is whole, or no dataset."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.options import Base
from beam_jobs.prepare.staging import Staging
from beam_jobs.storage import files
from beam_jobs.writing.publication import Publication, begun_publication
from schemas.file_names import COMPLETED, manifest_name, shard_name
from tests.support.dataset_files import EXCLUDED, MANIFEST
from tests.support.receipts import contents

LISTING = "versions/00001/duplicates/duplicates.jsonl-00000-of-00001"


def dataset(label: str, shards: int) -> dict[str, bytes]:
    """Files of a dataset but COMPLETED; their sizes and bytes tell which it is."""
    names = [MANIFEST, LISTING, *(shard_name("train", each) for each in range(shards))]
    return {name: f"{name} of {label}".encode() for name in names}


OLD, NEW, OTHER = dataset("old", 3), dataset("new one", 2), dataset("other dataset", 2)
LABELS = {"old": OLD, "new": NEW, "other": OTHER}


class Killed(BaseException):
    """Stands for SIGKILL: nothing that the build does may catch it."""


class Build:
    """One launch of a build, which has staged all files of a dataset."""

    def __init__(self, folder: Path, label: str, launch: str) -> None:
        self.output, self.staging = folder / "out", Staging(str(folder / "out"))
        self.staged = folder / "out" / "_staging" / f"finished-{launch}"
        self.dataset = LABELS[label]
        self.publication = Publication(
            launch=launch, request=label, completed=f"{label} is whole\n"
        )
        for name, data in self.dataset.items():
            (self.staged / name).parent.mkdir(parents=True, exist_ok=True)
            (self.staged / name).write_bytes(data)

    def publish(self) -> None:
        self.publication.move_into_place(
            list(self.dataset),
            {name: len(self.dataset[name]) for name in self.dataset if name.startswith("receipts")},
            self.staging,
        )


class Append(Build):
    """One launch of a build that appends version 2 to the dataset "old"."""

    def __init__(self, folder: Path, launch: str, *, shards: int = 2) -> None:
        LABELS["second"] = second(shards)
        super().__init__(folder, "second", launch)
        self.base = Base(
            directory=str(folder / "out"),
            version=1,
            completed="old is whole\n",
            first_shards={"train": 3},
        )

    def publish(self) -> None:
        sizes = {name: len(self.dataset[name]) for name in self.dataset if "receipts" in name}
        self.publication.move_into_place(list(self.dataset), sizes, self.staging, self.base)


def second(shards: int) -> dict[str, bytes]:
    """Files that version 2 adds."""
    names = [manifest_name(2), *(shard_name("train", 3 + each) for each in range(shards))]
    return {name: f"{name} of the second".encode() for name in names}


def published(folder: Path) -> Mapping[str, bytes]:
    """The files of the output directory without its staging directory."""
    everything = contents(folder / "out")
    return {name: data for name, data in everything.items() if not name.startswith("_staging/")}


def whole(label: str) -> dict[str, bytes]:
    return LABELS[label] | {COMPLETED: f"{label} is whole\n".encode()}


@contextmanager
def interrupted(at: int, interrupt: Callable[[], None]) -> Iterator[list[str]]:
    """Interrupts before the change of the file system with this number; yields those begun."""
    done: list[str] = []

    def counted(name: str, function: Callable[..., None]) -> Callable[..., None]:
        def change(*arguments: Any) -> None:
            done.append(name)
            if len(done) == at + 1:
                interrupt()
            function(*arguments)

        return change

    def one_by_one(pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            move([pair])

    def delete_one_by_one(paths: list[str]) -> None:
        for path in paths:
            delete([path])

    with pytest.MonkeyPatch.context() as patch:
        move, delete = counted("move", files.move), counted("delete", files.delete)
        patch.setattr(files, "move", one_by_one)
        patch.setattr(files, "delete", delete_one_by_one)
        patch.setattr(files, "write", counted("write", files.write))
        yield done


def kill() -> None:
    raise Killed


def count_of_changes(folder: Path) -> int:
    Build(folder, "old", "a").publish()
    with interrupted(-1, kill) as done:
        Build(folder, "new", "b").publish()
    assert {"write", "move", "delete"} == set(done)
    return len(done)


def test_a_kill_at_any_step_leaves_a_whole_dataset_or_none(tmp_path: Path):
    changes = count_of_changes(tmp_path / "counted")
    assert changes > 8
    seen = set()
    for at in range(changes):
        folder = tmp_path / str(at)
        Build(folder, "old", "a").publish()
        (folder / "out" / EXCLUDED).write_text("of the old dataset")
        with interrupted(at, kill), pytest.raises(Killed):
            Build(folder, "new", "b").publish()
        left = published(folder)
        if COMPLETED in left:
            assert left == whole("old") | {EXCLUDED: b"of the old dataset"}
        seen.add(COMPLETED in left)
        Build(folder, "new", "c").publish()
        assert published(folder) == whole("new")
    assert seen == {True, False}


def test_another_killed_publication_in_between_leaves_nothing(tmp_path: Path):
    for first, second in [(3, 3), (5, 2), (4, 6)]:
        folder = tmp_path / f"{first}-{second}"
        with interrupted(first, kill), pytest.raises(Killed):
            Build(folder, "old", "a").publish()
        with interrupted(second, kill), pytest.raises(Killed):
            Build(folder, "new", "b").publish()
        Build(folder, "old", "c").publish()
        assert published(folder) == whole("old")


def test_an_attempt_of_the_same_launch_goes_on_where_the_last_ended(tmp_path: Path):
    for at in range(3, count_of_changes(tmp_path / "counted")):
        folder = tmp_path / str(at)
        Build(folder, "old", "a").publish()
        build = Build(folder, "new", "b")
        with interrupted(at, kill), pytest.raises(Killed):
            build.publish()
        build.publish()
        assert published(folder) == whole("new")
        build.publish()  # as by a runner that did not hear of the success
        assert published(folder) == whole("new")


def test_files_of_another_launch_are_not_published(tmp_path: Path):
    build = Build(tmp_path, "new", "b")
    Build(tmp_path, "other", "c")  # has the same names
    build.publish()
    assert published(tmp_path) == whole("new")


def test_a_missing_file_leaves_the_old_dataset(tmp_path: Path):
    Build(tmp_path, "old", "a").publish()
    build = Build(tmp_path, "new", "b")
    (build.staged / shard_name("train", 1)).unlink()
    with pytest.raises(ValueError, match=r"00001.tfrecord is not in"):
        build.publish()
    assert published(tmp_path) == whole("old")


def test_a_shard_of_another_size_is_not_published(tmp_path: Path):
    build = Build(tmp_path, "new", "b")
    (build.staged / shard_name("train", 1)).write_bytes(b"half")
    with pytest.raises(ValueError, match=r"00001.tfrecord was not moved"):
        build.publish()
    assert COMPLETED not in published(tmp_path)


@pytest.mark.parametrize("label", ["other", "old"])
def test_two_that_publish_at_once_leave_no_mixture(tmp_path: Path, label: str):
    """Without a lock: the second begins and ends after each change that the first makes."""
    conflicts = 0
    with interrupted(-1, kill) as changes:
        Build(tmp_path / "counted", "new", "b").publish()
    assert changes[-3:] == ["move", "write", "move"]  # the last shard, COMPLETED
    for at in range(1, len(changes) - 2):
        folder = tmp_path / str(at)
        first, second = Build(folder, "new", "b"), Build(folder, label, "c")
        with interrupted(at, second.publish):
            try:
                first.publish()
                assert published(folder) == whole("new")
            except BuildError:
                assert COMPLETED not in published(folder)
                conflicts += 1
        Build(folder, "new", "d").publish()
        assert published(folder) == whole("new")
    assert conflicts >= 4  # one for each file that is moved, at least


def test_the_note_says_what_is_published(tmp_path: Path):
    build = Build(tmp_path, "new", "b")
    build.publish()
    note = (tmp_path / "out" / "_staging" / "publishing").read_text()
    assert note == '{"launch": "b", "request": "new", "completed": "new is whole\\n"}'


@pytest.mark.parametrize("data", [b"", b'{"launch": "b"', b"[]", b'{"launch": "b"}'])
def test_a_note_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, data: bytes):
    build = Build(tmp_path, "new", "b")
    (tmp_path / "out" / "_staging" / "publishing").write_bytes(data)
    assert begun_publication(build.staging) is None
    build.publish()
    assert published(tmp_path) == whole("new")


def test_a_kill_while_a_version_is_added_leaves_the_older_one(tmp_path: Path):
    Build(tmp_path / "counted", "old", "a").publish()
    with interrupted(-1, kill) as done:
        Append(tmp_path / "counted", "b").publish()
    assert len(done) == 6  # the note, three files, and COMPLETED is written and moved
    appended = whole("old") | second(2) | {COMPLETED: b"second is whole\n"}
    assert published(tmp_path / "counted") == appended
    for at in range(len(done)):
        folder = tmp_path / str(at)
        Build(folder, "old", "a").publish()
        # A killed attempt of another append has left more shards of the same version.
        for name, data in second(4).items():
            (folder / "out" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "out" / name).write_bytes(data)
        with interrupted(at, kill), pytest.raises(Killed):
            Append(folder, "b").publish()
        left = published(folder)
        assert whole("old").items() <= left.items(), "the older version is whole at any moment"
        Append(folder, "c").publish()
        assert published(folder) == appended


def test_of_two_that_append_one_wins_and_the_other_says_so(tmp_path: Path):
    Build(tmp_path, "old", "a").publish()
    first, later = Append(tmp_path, "b"), Append(tmp_path, "c")
    first.publish()
    before = published(tmp_path)
    sentence = f"another build has changed {tmp_path / 'out'} meanwhile, so nothing was appended"
    with pytest.raises(BuildError, match=re.escape(sentence)):
        later.publication.move_into_place(
            list(later.dataset), {}, later.staging, replace(later.base, completed="older\n")
        )
    assert published(tmp_path) == before
    assert all((later.staged / name).exists() for name in later.dataset), "its work is kept"


def test_a_conflict_is_named(tmp_path: Path):
    first, second = Build(tmp_path, "new", "b"), Build(tmp_path, "old", "c")
    sentence = f"another build publishes to {tmp_path / 'out'} at the same time"
    with interrupted(3, second.publish), pytest.raises(BuildError, match=re.escape(sentence)):
        first.publish()
