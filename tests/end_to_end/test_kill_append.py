"""An append or a compaction killed again and again ends with the bytes of one that was not.

Each kill leaves its work to the next launch in the same directory, and all the while the versions
before can be read.
"""

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.compact import main as compact
from tests.support.forked import ForkedProgram
from tests.support.kills import Change, check_killed, exit_code_at, matches, version_is_read
from tests.support.receipts import contents, read_table, write_receipts, write_table

OPTIONS = ("--shards=3", "--max-side=64", "--quiet")
# Each kill comes a random moment after so many new files of a kind are there.
MOMENTS = [
    ("_staging", 0),
    ("_staging/rows/*", 1),
    ("_staging/prepared/*.npz", 1),
    ("_staging/prepared/*.npz", 20),
    ("_staging/plan.json", 1),
    ("_staging/finished-*/receipts-*", 1),
    ("_staging/finished-*/receipts-*", 6),
    ("versions/00002/*", 1),
]
# The steps of an append, in their order; numbers count what is left to do for a launch.
STEPS = [
    Change("create", "_staging/rows/*"),
    Change("rename", "_staging/inputs.json"),
    Change("rename", "_staging/prepared/*.begun"),
    Change("rename", "_staging/prepared/*.npz", 15),
    Change("create", "_staging/prepared/*.tfrecord.*", 15),
    Change("rename", "_staging/plan.json"),
    Change("create", "_staging/finished-*/.receipts-*"),
    Change("rename", "_staging/finished-*/receipts-*", 15),
    Change("rename", "_staging/finished-*/versions/00002/manifest.json"),
    Change("rename", "_staging/publishing"),
    Change("rename", "versions/00002/manifest.json"),
    Change("rename", "versions/00002/schema.pbtxt"),
    Change("rename", "receipts-train-00003.tfrecord"),
    Change("rename", "receipts-validation-00004.index.npz"),
    Change("create", "_staging/finished-*/.COMPLETED.*"),
    Change("rename", "COMPLETED"),
    # From here on version 2 is there.
    Change("rename", "features.json"),
    Change("remove", "_staging/*", 100),
    Change("remove", "_staging/publishing"),
    Change("rmdir", "_staging/prepared"),
]
PUBLISHED = STEPS.index(Change("rename", "features.json"))
COMPACT_STEPS = [
    Change("rename", "_staging/finished-*/receipts-*", 6),
    Change("rename", "receipts-train-00006.tfrecord"),
    Change("rename", "COMPLETED"),
    Change("rename", "dataset_info.json"),
]


class Append:
    """The directories of an append.

    Attributes:
      old: a dataset of one version.
      whole: the same with a second version, appended by a build that was not killed.
    """

    def __init__(self, folder: Path, build: Callable[..., int]) -> None:
        rows = read_table(write_receipts(folder, {"a": 200, "b": 90, "c": 9, "d": 1}, first=1000))
        for row in rows:
            row["image"] = str(folder / row["image"])
        self._build = build
        self._second = write_table(folder / "second.jsonl", rows)
        self.old, self.whole = folder / "old", folder / "whole"
        assert build(write_table(folder / "first.jsonl", rows[::2]), self.old, *OPTIONS) == 0
        shutil.copytree(self.old, self.whole)
        self.finish(self.whole)

    def arguments(self, output: Path) -> list[str]:
        """Arguments of the build that appends, less the number of workers."""
        return ["--input", str(self._second), "--output", str(output), "--append", *OPTIONS]

    def finish(self, output: Path) -> None:
        """Appends in this process."""
        assert self._build(self._second, output, "--append", *OPTIONS) == 0


@pytest.fixture(scope="module")
def append(tmp_path_factory: pytest.TempPathFactory, build: Callable[..., int]) -> Append:
    return Append(tmp_path_factory.mktemp("append"), build)


def test_an_append_killed_at_random_moments_resumes(append: Append, tmp_path: Path):
    output = Path(shutil.copytree(append.old, tmp_path / "out"))
    before, expected = contents(append.old), contents(append.whole)
    rng = random.Random(1)
    reached = 0
    with version_is_read(output, 1) as readings:
        for pattern, number in MOMENTS:
            found = matches(output, pattern)
            command = ["beam_jobs.build", "--workers=2", *append.arguments(output)]
            process = ForkedProgram(command, has_session=True)
            while len(matches(output, pattern) - found) < number and process.poll() is None:
                time.sleep(0.005)
            # The last moment is so near the end that the build may have ended by itself.
            is_last = (pattern, number) == MOMENTS[-1]
            assert process.poll() is None or is_last, f"the append ended before {pattern}"
            time.sleep(rng.random() / 100)
            process.kill_session()
            reached += process.wait() == -signal.SIGKILL
            check_killed(output, before, expected)
        append.finish(output)
    assert reached >= len(MOMENTS) - 1
    assert len(readings) > len(MOMENTS)
    assert set(readings) == {None}
    assert contents(output) == expected


def test_an_append_killed_in_each_of_20_steps_resumes(append: Append, tmp_path: Path):
    output = Path(shutil.copytree(append.old, tmp_path / "out"))
    before, expected = contents(append.old), contents(append.whole)
    arguments = [*append.arguments(output), "--workers=1"]
    assert len(STEPS) == 20
    with version_is_read(output, 1) as readings:
        for number, step in enumerate(STEPS):
            read = len(readings)
            assert exit_code_at(step, "beam_jobs.build", arguments, output) == -signal.SIGKILL, step
            assert check_killed(output, before, expected) is (number >= PUBLISHED), step
            assert len(readings) > read, "version 1 was not read meanwhile"
        append.finish(output)
    assert set(readings) == {None}
    assert contents(output) == expected


def test_a_compaction_killed_in_each_step_is_made_anew(append: Append, tmp_path: Path):
    whole = Path(shutil.copytree(append.whole, tmp_path / "whole"))
    assert compact([str(whole), "--workers=1"]) == 0
    output = Path(shutil.copytree(append.whole, tmp_path / "out"))
    before, expected = contents(append.whole), contents(whole)
    arguments = [str(output), "--workers=1"]
    with version_is_read(output, 1) as readings, version_is_read(output, 2) as later:
        for number, step in enumerate(COMPACT_STEPS):
            code = exit_code_at(step, "beam_jobs.compact", arguments, output)
            assert code == -signal.SIGKILL, step
            published = check_killed(output, before, expected)
            assert published is (number == len(COMPACT_STEPS) - 1), step
        assert compact(arguments) == 0
    assert len(readings) > len(COMPACT_STEPS) < len(later)
    assert {*readings, *later} == {None}
    assert contents(output) == expected
