"""A run that goes on: from which step, and what it does about steps that were not evaluated."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from pipeline.evaluation.evaluator import Evaluation
from pipeline.train import main
from pipeline.training.checkpoint_files import written_steps
from pipeline.training.run_directory import RunFolder
from pipeline.training.trainer import Trainer
from schemas.file_names import shard_name

OPTIONS = (
    "--task=tests.support.tiny_task:TinyTask",
    "--quiet",
    "--global-batch-size=8",
    "--evaluation-split=train",
    "--steps-per-call=5",
)


def steps(run_dir: Path, name: str) -> list[int]:
    """Steps whose figure of a name the log has, in its order."""
    lines = map(json.loads, (run_dir / "log.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if name in line]


@pytest.fixture(scope="module")
def trained(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of 10 steps, with two evaluations; tests must not change it."""
    run_dir = tmp_path_factory.mktemp("run")
    command = [str(directory), f"--run-dir={run_dir}", *OPTIONS]
    assert main([*command, "--evaluate-every=5", "--steps=10"]) == 0
    return run_dir


@pytest.fixture
def run_dir(trained: Path, tmp_path: Path) -> Path:
    """A copy of `trained`."""
    return shutil.copytree(trained, tmp_path / "run")


def test_a_missing_checkpoint_takes_back_to_the_one_before(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    command = [str(directory), f"--run-dir={tmp_path}", *OPTIONS, "--checkpoint-every=5"]
    assert main([*command, "--steps=15"]) == 0
    newest = tmp_path / "checkpoints" / "step-15"
    newest.with_suffix(".index").unlink()
    capsys.readouterr()
    assert main([*command, "--steps=20"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"checkpoint {newest} is missing: the run goes on from step 10, the newest whole one",
        "from step 11 on, other options count:",
        "  steps: 15 then, 20 now",
    ]
    assert steps(tmp_path, "loss") == [5, 10, 15, 15, 20]


def test_fewer_steps_than_were_taken(
    directory: Path, run_dir: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        main([str(directory), f"--run-dir={run_dir}", *OPTIONS, "--steps=9"])
    sentence = (
        f"the run in {run_dir} is at step 10, and the last of its steps is 9: choose more steps, "
        "or another run folder"
    )
    assert sentence in capsys.readouterr().err


def test_a_failed_evaluation_loses_no_steps(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is made up for by the next start, so that the best checkpoint is the same."""
    options = ("--steps=20", "--evaluate-every=5", "--checkpoint-every=100")
    whole, failed = tmp_path / "whole", tmp_path / "failed"
    assert main([str(directory), f"--run-dir={whole}", *OPTIONS, *options]) == 0
    evaluate = Trainer.evaluate
    failing = {5, 20}

    def evaluate_or_fail(trainer: Trainer, split: str) -> Evaluation:
        if trainer.step in failing:
            failing.remove(trainer.step)
            raise OSError("a record cannot be read")
        return evaluate(trainer, split)

    monkeypatch.setattr(Trainer, "evaluate", evaluate_or_fail)
    command = [str(directory), f"--run-dir={failed}", *OPTIONS, *options]
    for _ in range(2):
        with pytest.raises(OSError, match="a record cannot be read"):
            main(command)
    assert main(command) == 0
    assert not failing
    for name in ("loss", "validation/loss"):
        assert steps(failed, name) == steps(whole, name) == [5, 10, 15, 20]
    best = [path.name for path in (whole / "best").glob("*.index")]
    assert [path.name for path in (failed / "best").glob("*.index")] == best
    assert main(command) == 0
    assert steps(failed, "validation/loss") == [5, 10, 15, 20]


def test_a_run_that_needs_no_steps_says_so(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    command = [str(directory), f"--run-dir={tmp_path}", *OPTIONS, "--steps=5"]
    assert main(command) == 0
    assert capsys.readouterr().err == ""
    assert main(command) == 0
    assert capsys.readouterr().err == (
        "the run was at its last step, 5: to go on, choose more steps\n"
    )


def test_a_run_that_patience_ends_says_so(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Now, and when it is run again, also with another learning rate."""
    command = [str(directory), f"--run-dir={tmp_path}", *OPTIONS, "--steps=25"]
    command += ["--evaluate-every=5", "--patience=1", "--learning-rate=1e-30"]
    sentence = (
        "the run ended at step 10, as no evaluation within --patience 1 had a lower loss: to go "
        "on, choose a higher patience"
    )
    for rate in ("1e-30", "1e-30", "0.01"):
        assert main([*command, f"--learning-rate={rate}"]) == 0
        assert capsys.readouterr().err.splitlines()[-1] == sentence
    assert main([*command, "--learning-rate=0.01", "--patience=100"]) == 0
    assert sentence not in capsys.readouterr().err
    assert steps(tmp_path, "loss") == list(range(5, 26, 5))


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet: bool):
    options = [each for each in OPTIONS if quiet or each != "--quiet"]
    assert main([str(directory), f"--run-dir={tmp_path}", *options, "--steps=5"]) == 0
    printed = "".join(capsys.readouterr())
    assert ("step 5: validation loss" in printed) is not quiet
    assert (printed == "") is quiet


@pytest.mark.parametrize("other_data", [False, True])
def test_another_model_is_refused(
    directory: Path, run_dir: Path, capsys: pytest.CaptureFixture[str], other_data: bool
):
    """The sentence offers no option that can't help where the weights can't be restored."""
    command = [str(directory), f"--run-dir={run_dir}", *OPTIONS, "--evaluate-every=5"]
    with pytest.raises(SystemExit):
        main([*command, "--steps=10", "--model.size=16", *["--other-data"] * other_data])
    assert capsys.readouterr().err.partition("error: ")[2] == (
        f"{run_dir}/checkpoints/step-10 does not fit the model, which has other variables or "
        "other shapes:\n  input.height: 24 then, 16 now\n  input.width: 24 then, 16 now\n"
        "  task.size: 24 then, 16 now\n"
        "Give the task and its options as they were, or choose another run folder; --other-data "
        "can't help here.\n"
    )


def remove_best(best: Path) -> None:
    shutil.rmtree(best)


def flip_a_bit_of_best(best: Path) -> None:
    (path,) = best.glob("*.data-*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [remove_best, flip_a_bit_of_best])
def test_a_best_checkpoint_that_is_gone_comes_back(
    directory: Path,
    run_dir: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
):
    """With the next evaluation, whatever its loss; from then on, it takes a lower one again."""
    command = [str(directory), f"--run-dir={run_dir}", *OPTIONS, "--evaluate-every=5"]
    damage(run_dir / "best")
    # A rate that makes the loss worse, and then better than that.
    assert main([*command, "--steps=15", "--schedule=constant", "--learning-rate=5"]) == 0
    sentence = f"{run_dir}/best is empty or damaged: the next evaluation fills it"
    assert capsys.readouterr().err.splitlines()[0] == sentence
    found = RunFolder(str(run_dir), is_chief=False).evaluations()
    assert found[15] > found[10]
    assert written_steps(str(run_dir / "best")) == {15}
    assert main([*command, "--steps=25", "--learning-rate=0.1"]) == 0
    assert sentence not in capsys.readouterr().err
    found = RunFolder(str(run_dir), is_chief=False).evaluations()
    later = {step: loss for step, loss in found.items() if step >= 15}
    assert min(later, key=later.__getitem__) > 15
    assert written_steps(str(run_dir / "best")) == {min(later, key=later.__getitem__)}


def test_an_unreadable_list_of_the_best_loses_nothing(
    directory: Path, run_dir: Path, capsys: pytest.CaptureFixture[str]
):
    command = [str(directory), f"--run-dir={run_dir}", *OPTIONS, "--evaluate-every=5"]
    best = written_steps(str(run_dir / "best"))
    (run_dir / "best" / "checkpoint").write_bytes(b'model_checkpoint_path: "mod')
    assert main([*command, "--steps=15", "--schedule=constant", "--learning-rate=5"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == (
        f"{run_dir}/best/checkpoint can't be read: it is made again from the files beside it"
    )
    assert written_steps(str(run_dir / "best")) == best


@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_a_damaged_record_ends_the_run_with_a_sentence(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
):
    copy = shutil.copytree(directory, tmp_path / "copy")
    shard = copy / shard_name("train", 2)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    if damage == "remove":
        shard.unlink()
    assert main([str(copy), f"--run-dir={tmp_path / 'run'}", *OPTIONS, "--steps=20"]) == 1
    assert re.fullmatch(
        rf"{shard}: record \w+-\d+ at byte \d+ cannot be read; python -m beam_jobs\.verify tells "
        r"what is wrong with it, [^\n]* with --other-data\n",
        capsys.readouterr().err,
    )
