"""The trainer: the same losses on any number of replicas, and nothing lost when it is killed."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import Balance, InputConfig
from pipeline.distribution.stop_request import STOPPED
from pipeline.train import main
from pipeline.train_arguments import configured, make_parser, split_model_options
from pipeline.training.run_directory import RunFolder
from tests.support.processes import Process, processes, wait_until

TASK = (
    "--task=tests.support.tiny_task:TinyTask",
    "--quiet",
    "--global-batch-size=8",
    "--evaluation-split=train",
)


PENALIZED = "--task=tests.support.tiny_task:PenalizedTask"  # counts after that of TASK


def command(devices: int, directory: Path, run_dir: Path, *options: str) -> list[str]:
    arguments = [str(directory), f"--run-dir={run_dir}", *TASK, *options]
    return ["tests.support.train_worker", str(devices), *arguments]


def finish(started: Sequence[Process]) -> None:
    wait_until(lambda: all(each.has_ended() for each in started), started)


def losses(run_dir: Path) -> list[float]:
    lines = map(json.loads, (run_dir / "log.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def pictures(run_dir: Path) -> list[bytes]:
    """The pictures of the last evaluation follow from counts and predicted labels alone."""
    return [(run_dir / f"{name}.png").read_bytes() for name in ("confusion", "samples")]


def weights(run_dir: Path) -> dict[str, np.ndarray]:
    """All variables of the last checkpoint, but how many there were."""
    reader = tf.train.load_checkpoint(str(run_dir / "checkpoints"))
    numbers = {
        name: reader.get_tensor(name)
        for name, dtype in reader.get_variable_to_dtype_map().items()
        if dtype != tf.string and not name.startswith("save_counter")
    }
    assert len(numbers) > 5
    return numbers


def assert_equal_weights(first: Path, second: Path) -> None:
    expected = weights(first)
    found = weights(second)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_losses_do_not_depend_on_the_number_of_replicas(directory: Path, tmp_path: Path):
    options = ("--steps=12", "--steps-per-call=1", "--clip-norm=1", "--balance-alpha=0.3")
    options += ("--sample-weights", PENALIZED)
    seen = {}
    for devices in (1, 2, 4):
        run_dir = tmp_path / f"{devices}"
        extra = ("--accumulate=4",) if devices == 1 else ()
        with processes(
            tmp_path / f"process-{devices}",
            {"worker": [command(devices, directory, run_dir, *options, *extra)]},
        ) as started:
            finish(started)
        seen[devices] = losses(run_dir)
    assert len(seen[1]) == 12
    assert len(set(seen[1])) == 12
    np.testing.assert_allclose(seen[2], seen[1], rtol=1e-4)
    np.testing.assert_allclose(seen[4], seen[1], rtol=1e-4)
    assert pictures(tmp_path / "1") == pictures(tmp_path / "2") == pictures(tmp_path / "4")


def test_losses_that_replicas_would_mix_up_are_refused(directory: Path, tmp_path: Path):
    task = "--task=tests.support.tiny_task:SynchronizedTask"
    commands = {"worker": [command(2, directory, tmp_path / "run", task)]}
    with processes(tmp_path / "process", commands) as started:
        assert started[0].wait() == 2
        words = started[0].errors()
    assert "has a layer that adds a loss and another one that waits for all replicas" in words
    assert "Traceback" not in words


def test_killed_and_stopped_runs_end_with_the_same_weights(directory: Path, tmp_path: Path):
    options = ("--steps=400", "--checkpoint-every=10", "--model.dropout=0.3", "--weight-decay=0.01")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with processes(
        tmp_path / "uninterrupted", {"worker": [command(2, directory, whole, *options)]}
    ) as started:
        finish(started)
    again = {"worker": [command(2, directory, killed, *options)]}

    def reached(step: int) -> bool:
        return any(
            int(path.stem.partition("-")[2]) >= step
            for path in (killed / "checkpoints").glob("step-*.index")
        )

    with processes(tmp_path / "first", again) as started:
        wait_until(lambda: reached(20), started)
        started[0].kill()
    with processes(tmp_path / "second", again) as started:
        wait_until(lambda: reached(60), started)
        assert started[0].terminate() == STOPPED
    assert not reached(400)
    with processes(tmp_path / "third", again) as started:
        finish(started)
    assert_equal_weights(whole, killed)


def test_two_workers_train_like_one_and_lose_nothing(directory: Path, tmp_path: Path):
    options = ("--steps=60", "--checkpoint-every=10", "--evaluate-every=30", PENALIZED)
    runs = {}
    for workers in (1, 2):
        runs[workers] = tmp_path / f"run-{workers}"
        commands = [command(1, directory, runs[workers], *options)] * workers
        with processes(tmp_path / f"processes-{workers}", {"worker": commands}) as started:
            finish(started)
    np.testing.assert_allclose(losses(runs[2]), losses(runs[1]), rtol=1e-4)
    assert pictures(runs[2]) == pictures(runs[1])
    # One of two is killed; the other can't go on, and both are started again.
    killed = tmp_path / "killed"
    again = {"worker": [command(1, directory, killed, *options)] * 2}
    with processes(tmp_path / "first", again) as started:
        wait_until(lambda: (killed / "checkpoints" / "step-20.index").exists(), started)
        started[1].kill()
    alone = shutil.copytree(killed, tmp_path / "alone")
    with processes(tmp_path / "second", again) as started:
        finish(started)
    assert_equal_weights(runs[2], killed)
    # Where the other never comes back, one goes on.
    one = {"worker": [command(1, directory, alone, *options)]}
    with processes(tmp_path / "third", one) as started:
        finish(started)
    found = [
        line["loss"] for line in RunFolder(str(alone), is_chief=False).lines() if "loss" in line
    ]
    np.testing.assert_allclose(found, losses(runs[1]), rtol=1e-4)


def test_best_checkpoint_and_early_stopping(directory: Path, tmp_path: Path):
    """A learning rate far too high makes the loss worse; the best checkpoint is an early one."""
    run_dir = tmp_path / "run"
    options = ["--steps=100", "--evaluate-every=5", "--patience=2", "--learning-rate=5"]
    status = main([str(directory), f"--run-dir={run_dir}", *TASK, *options])
    assert status == 0
    lines = [json.loads(line) for line in (run_dir / "log.jsonl").read_text().splitlines()]
    found = {each["step"]: each["validation/loss"] for each in lines if "validation/loss" in each}
    best = min(found, key=found.__getitem__)
    assert [path.stem for path in (run_dir / "best").glob("*.index")] == [f"step-{best}"]
    assert max(found) == best + 10 < 100
    last = tf.train.latest_checkpoint(str(run_dir / "checkpoints"))
    assert Path(last).name == f"step-{best + 10}"
    assert main([str(directory), f"--run-dir={run_dir}", *TASK, *options]) == 0
    assert (run_dir / "log.jsonl").read_text().splitlines() == [json.dumps(each) for each in lines]
    assert (run_dir / "plot.png").stat().st_size > 1000


def test_a_run_goes_on_where_its_log_and_options_are_damaged(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = [str(directory), f"--run-dir={tmp_path}", *TASK, "--evaluate-every=1"]
    assert main([*arguments, "--steps=2"]) == 0
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"\0" * 64 + b"\n" + log.read_bytes() + b"{}\n")
    numbers = f"1, {len(log.read_bytes().splitlines())}"
    (tmp_path / "options.json").write_text("{")
    assert main([*arguments, "--steps=3"]) == 0
    said = capsys.readouterr().err
    assert f"{log}: lines {numbers} are damaged and left out, with the evaluations" in said
    assert f"{tmp_path}/options.json is damaged" in said
    folder = RunFolder(str(tmp_path), is_chief=False)
    assert list(folder.evaluations()) == [1, 2, 3]
    assert folder.read_options()["steps"] == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--steps=0"], "error: --steps must be at least 1, got 0"),
        (["--task=nothing"], "task 'nothing' is not a package.module:name"),
        (["--model.height=3"], "has no option 'height': choose among size, dropout"),
        (["--width=3"], "unknown argument --width=3: --help lists the options"),
        (["--model.size"], "size must be a whole number, got ''"),
        (["--accumulate=3"], "8 can't be divided by 1 replicas that accumulate 3 parts"),
        (["--balance-alpha=2"], "error: --balance-alpha must be 0 (every layout alike) to 1"),
        (["--balance-alpha=1@5"], "error: --balance-alpha must have a first phase at step 0, got"),
        (
            ["--balance-alpha=1@0,x@5"],
            "--balance-alpha: must be a number or a pair X@Y, or several with commas, got '1@0,x",
        ),
        (
            [
                "--task=pipeline.tasks.layout_classifier:LayoutClassifier",
                "--model.logit-adjustment=1",
                "--balance-alpha=0",
            ],
            "logit_adjustment 1.0 compensates the natural shares, and an alpha of 0.0 has changed",
        ),
        (
            ["--train-only=dens"],
            "train_only names 'dens', which is no layer: choose among head, sequential/dense",
        ),
        (["--init-without=head"], "--init-without head says what --init-from leaves out: give bot"),
        (["--schedule=linear"], "argument --schedule: must be one of cosine, constant"),
        (["--patience=0"], "--patience must be at least 1, got 0"),
        (["--patience=3"], "patience 3 counts evaluations, and there is only one, at the end"),
        (["--run-dir=ram://bucket/run"], "run folder 'ram://bucket/run' can't lie in ram://"),
    ],
)
def test_errors(
    directory: Path,
    tmp_path: Path,
    options: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(SystemExit):
        main([str(directory), f"--run-dir={tmp_path}", *TASK, *options])
    assert sentence in capsys.readouterr().err


def test_an_error_of_training_is_no_fault_of_the_options(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object, **__: object) -> None:
        raise ValueError("shapes do not match")

    monkeypatch.setattr("pipeline.train.run", fail)
    with pytest.raises(ValueError, match="shapes do not match"):
        main([str(directory), f"--run-dir={tmp_path}", *TASK])


@pytest.mark.parametrize(
    ("options", "balance"),
    [
        ([], Balance(alpha=0.5, by="shop")),
        (["--balance-alpha=0.2"], Balance(alpha=0.2, by="shop")),
        (["--balance-alpha=1@0,0@60"], Balance(alpha=((1.0, 0), (0.0, 60)), by="shop")),
        (["--balance-by=layout", "--balance-repeat-cap=3"], Balance(alpha=0.5, repeat_cap=3.0)),
    ],
    ids=lambda each: " ".join(each) or "none" if isinstance(each, list) else "",
)
def test_options_that_are_not_given_are_those_of_the_task(options: list[str], balance: Balance):
    config = InputConfig(dtype="uint8", sample_weights=True, balance=Balance(alpha=0.5, by="shop"))
    args = make_parser().parse_args(["data", "--run-dir=run", *options])
    assert configured(config, args) == dataclasses.replace(config, balance=balance)


def test_options_of_the_command_come_before_those_of_the_task():
    given = ("--image-dtype=float32", "--placement=device")
    args = make_parser().parse_args(["data", "--run-dir=run", *given])
    config = configured(InputConfig(dtype="uint8", features=("image", "label")), args)
    assert (config.dtype, config.placement) == ("float32", "device")
    assert config.features == ("image", "label", "seed")


def test_options_of_the_task_may_come_anywhere():
    given = ["--model.size", "20", "data", "--model.drop-out=0.1", "--steps=3", "--model.last"]
    others, options = split_model_options(given)
    assert others == ["data", "--steps=3"]
    assert options == {"size": "20", "drop_out": "0.1", "last": ""}


def test_other_options_are_refused(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = [str(directory), f"--run-dir={tmp_path}", *TASK]
    assert main([*arguments, "--steps=2"]) == 0
    asked = (tmp_path / "options.json").read_text()
    with pytest.raises(SystemExit):
        main([*arguments, "--steps=4", "--seed=1"])
    error = capsys.readouterr().err
    assert "was trained on other data or with other options:\n  seed: 0 then, 1 now" in error
    assert (tmp_path / "options.json").read_text() == asked
    assert main([*arguments, "--steps=4", "--seed=1", "--other-data"]) == 0
    lines = RunFolder(str(tmp_path), is_chief=True).lines()
    assert [line["step"] for line in lines if "loss" in line] == [2, 4]
