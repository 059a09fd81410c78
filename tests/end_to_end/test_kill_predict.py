"""A prediction killed twenty times, each time a step further, ends with the same bytes.

So does one whose two workers are killed, too, while they predict.
"""

from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from schemas.file_names import COMPLETED
from tests.support import fake_model
from tests.support.forked import kill_when
from tests.support.kills import Change, exit_code_at, matches
from tests.support.receipts import contents, write_receipts

MODULE = "tests.support.fake_predict"
PREPARED = "_staging/prepared"
CHUNKS_OF_TWO_WORKERS = (1, 4, 7)
# A kill within a chunk makes the next run predict it in other processes, which take long to start.
KILLS = [
    Change("create", "_staging/BUILD"),
    Change("create", "_staging/rows/*"),
    Change("rename", "_staging/rows/*"),
    Change("rename", "_staging/inputs.json"),
    Change("rename", f"{PREPARED}/*.begun"),
    Change("rename", f"{PREPARED}/*.tfrecord"),
    Change("rename", f"{PREPARED}/*.npz", 8),
    *(Change("rename", "_staging/references/*", number) for number in (2, 5, 8, 11, 14, 17, 20)),
    Change("create", "_staging/finished-*/.predictions-*"),
    Change("rename", "_staging/finished-*/predictions-*", 2),
    Change("rename", "_staging/finished-*/quarantine/*"),
    Change("rename", "_staging/finished-*/manifest.json"),
    Change("rename", "_staging/publishing"),
    Change("rename", "manifest.json"),
    Change("rename", "predictions-*", 2),
    Change("rename", COMPLETED),
    Change("remove", "_staging/*"),
]


def test_a_prediction_killed_twenty_times(tmp_path: Path) -> None:
    model = fake_model.write_model(tmp_path / "model")
    table = write_receipts(tmp_path / "in", {"a": 25, "b": 14})
    (tmp_path / "in" / "images" / "a-7.jpg").write_bytes(b"no image")

    def arguments(output: Path, workers: int) -> list[str]:
        options = ["--files=2", f"--workers={workers}", "--quiet", "--batch-size=2"]
        return [str(model), "--input", str(table), "--output", str(output), *options]

    def run(output: Path, change: Change) -> int:
        return exit_code_at(change, MODULE, arguments(output, 1), output)

    def kill_two_workers(output: Path, chunks: int) -> bool:
        """Kills all processes of a run once so many chunks have been predicted."""

        def predicted() -> bool:
            return len(matches(output, f"{PREPARED}/*.npz")) >= chunks

        return kill_when([MODULE, *arguments(output, 2)], predicted)

    never = Change("create", "never")
    assert run(tmp_path / "whole", never) == 0
    expected = contents(tmp_path / "whole")

    output = tmp_path / "two"
    for chunks in CHUNKS_OF_TWO_WORKERS:
        assert kill_two_workers(output, chunks)
        assert not (output / COMPLETED).exists()
    assert run(output, never) == 0
    assert contents(output) == expected

    output = tmp_path / "out"
    killed = [change for change in KILLS if run(output, change) == -9]
    assert len(killed) >= 20, set(KILLS) - set(killed)
    assert run(output, never) == 0
    assert contents(output) == expected
