"""A training run and a dataset that grows under it."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("tensorflow")

from beam_jobs.forget import main as forget_main
from pipeline.train import main as train_main
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
    assert [trained_version(str(run_dir / "checkpoints")) for run_dir in run_dirs] == [1, 1]


def test_a_run_is_told_that_its_version_has_ended(
    rows: list[dict], build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data, run_dir = tmp_path / "data", tmp_path / "run"
    table = table_of(tmp_path, "all", rows)
    assert build(table, data, "--shards=2", "--splits=train=1", *LABELS) == 0
    options = ("--steps=100000", "--checkpoint-every=10")
    endless = {"worker": [command(1, data, run_dir, *options)]}
    with processes(tmp_path / "endless", endless) as started:
        wait_until(lambda: any((run_dir / "checkpoints").glob("step-*.index")), started)
        (tmp_path / "ids.txt").write_text(f"{rows[7]['id']}\n")
        assert forget_main([str(data), f"--ids={tmp_path / 'ids.txt'}", "--workers=1"]) == 0
        assert started[0].wait() == 1
        log = started[0].errors()
    assert f"{data}: version 1 has ended, as receipts in it had to be forgotten" in log
    assert "Traceback" not in log

    with pytest.raises(SystemExit):
        train_main(command(1, data, run_dir, "--steps=1")[2:])
    assert "version 1 has ended, as receipts in it had to be forgotten: choose one of 2" in (
        capsys.readouterr().err
    )
