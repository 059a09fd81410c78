"""A training run and a dataset that grows under it."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("tensorflow")

from pipeline.training.checkpoints import trained_version
from tests.end_to_end.test_train import assert_equal_weights, command, finish
from tests.support.dataset_files import manifest_of
from tests.support.grown import LABELS, table_of
from tests.support.processes import processes, wait_until


def test_a_run_that_is_killed_stays_with_its_version(
    rows: list[dict], build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    still, growing = tmp_path / "still", tmp_path / "growing"
    table = table_of(tmp_path, "first", rows[:40])
    assert build(table, growing, "--shards=2", "--splits=train=1", *LABELS) == 0
    shutil.copytree(growing, still)
    options = ("--steps=120", "--checkpoint-every=10", "--model.dropout=0.3")
    run_dirs = whole, killed = tmp_path / "whole", tmp_path / "killed"
    with processes(
        tmp_path / "uninterrupted", {"worker": [command(1, still, whole, *options)]}
    ) as started:
        finish(started)

    again = {"worker": [command(1, growing, killed, *options)]}
    with processes(tmp_path / "first", again) as started:
        wait_until(lambda: any((killed / "checkpoints").glob("step-*.index")), started)
        started[0].kill()
    assert not (killed / "checkpoints" / "step-120.index").exists()
    assert build(table_of(tmp_path, "all", rows), growing, "--shards=2", "--append") == 0
    assert manifest_of(growing).version == 2
    with processes(tmp_path / "second", again) as started:
        finish(started)
    assert_equal_weights(whole, killed)
    assert [trained_version(run_dir / "checkpoints") for run_dir in run_dirs] == [1, 1]
