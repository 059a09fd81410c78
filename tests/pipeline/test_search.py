"""The options of a search: what is checked before the first trial."""

import errno
import json
import os
import re
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("optuna")

from pipeline.search import FAILED, STOPPED, check, find_fault, main
from pipeline.searching import study as study_module
from pipeline.searching.definition import Definition
from tests.support.searches import SPACE, definition_of, open_study

RATE = "learning_rate=log:1e-4..1e-1"


def checked(directory: Path, *arguments: str, space=(RATE,), pruner="asha", version=None):
    return check(
        [str(directory), "--evaluate-every=5", "--evaluation-split=train", *arguments],
        list(space),
        "validation/loss",
        pruner,
        version,
    )


def test_the_definition_has_what_shapes_the_runs(directory: Path):
    space = [RATE, "model.width=8,32", "clip-norm=none,1"]
    found = checked(directory, "--steps=50", "--model.size=64", "--keep=1", space=space)
    definition = Definition.from_json(found.definition)
    assert found.first == {"learning_rate": 1e-3, "model.width": 32, "clip_norm": None}
    assert list(definition.space) == ["clip_norm", "learning_rate", "model.width"]
    assert definition.version == 1
    options = definition.options
    assert (options["steps"], options["model.size"], options["evaluate_every"]) == (50, 64, 5)
    assert not options.keys() & {"learning_rate", "model.width", "keep", "run_dir", "data_dir"}
    # The same search, wherever the dataset lies and however often it is saved.
    again = checked(directory, "--model.size=64", "--steps=50", "--keep=9", space=space)
    assert again.definition == found.definition
    other = checked(directory, "--model.size=96", "--steps=50", space=space)
    assert Definition.from_json(other.definition).changes(definition) == [
        "--model.size: 64 then, 96 now"
    ]


def test_there_is_no_first_trial_with_defaults_that_lie_outside_of_the_space(directory: Path):
    assert checked(directory, space=["learning_rate=log:1e-2..1e-1"]).first == {}


@pytest.mark.parametrize(
    ("arguments", "space", "sentence"),
    [
        (
            (),
            ("balance_alpha=1@0,0.5",),
            "--space balance_alpha=1@0,0.5: must be a number, got '1@0'",
        ),
        ((), ("lr=1..2",), "'lr' is not an option that a search can vary: choose among steps, "),
        (
            (),
            ("model.width=8..64",),
            "--space model.width: with 9, --model.width must be a multiple of 8, got 9",
        ),
        (
            (),
            ("learning_rate=-1..1",),
            "--space learning_rate: with -1.0, --learning-rate must be above 0, got -1.0",
        ),
        (
            ("--learning-rate=1",),
            (RATE,),
            "--learning-rate is given for all trials, and is in --space: leave one out",
        ),
        (
            ("--model.width", "8"),
            ("model.width=8,16",),
            "--model.width is given for all trials, and is in --space: leave one out",
        ),
        (("--run-dir=x",), (RATE,), "--run-dir can't be given to a search, which sets it for each"),
        (
            ("--prometheus-port", "9100"),
            (RATE,),
            "--prometheus-port can't be given to a search, whose processes would all serve their",
        ),
        (("--stepz=3",), (RATE,), "unknown argument --stepz=3: --help lists the options"),
        (("--steps=0",), (RATE,), "--steps must be at least 1, got 0"),
        (("--steps=x",), (RATE,), "argument --steps: must be a whole number, got 'x'"),
        (("--version=7",), (RATE,), "there is no version 7"),
        (("--evaluation-split=none",), (RATE,), "has no split 'none': choose one of train"),
        (
            ("--strategy=parameter_server",),
            (RATE,),
            "--strategy parameter_server is for runs of several processes, and a trial is one",
        ),
    ],
)
def test_what_is_wrong_gets_a_sentence(directory: Path, arguments, space, sentence: str):
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(sentence)):
        checked(directory, *arguments, space=space)


def test_a_task_of_wrong_shapes_is_refused(directory: Path):
    task = ("--task=tests.pipeline.training.test_trainer:Faulty", "--model.method=loss")
    with pytest.raises(ValueError, match=r"Faulty\.loss has the shape \[\], and must have \[n\]"):
        checked(directory, *task)


def test_a_cluster_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({}))
    sentence = "TF_CONFIG is for runs of several processes, and a trial is one"
    with pytest.raises(ValueError, match=sentence):
        checked(directory)


def test_pruning_needs_evaluations(directory: Path):
    def check_with(pruner: str) -> None:
        arguments = [str(directory), "--evaluation-split=train"]
        check(arguments, [RATE], "validation/loss", pruner, None)

    sentence = (
        "--pruner median looks at evaluations, and there is only one, at the end: give "
        "--evaluate-every, or --pruner none"
    )
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        check_with("median")
    check_with("none")


def test_whose_fault_a_refusal_is(directory: Path, tmp_path: Path):
    arguments = ["--evaluation-split=train"]
    fitting, wrong = {"learning_rate": 1e-3}, {"learning_rate": -1.0}
    there, away = [str(directory), *arguments], [str(tmp_path / "away"), *arguments]
    assert find_fault(there, SPACE, 1, fitting) == ("error", "")
    ending, reason = find_fault(there, SPACE, 1, wrong)
    assert ending == "refused"
    assert reason == "--learning-rate must be above 0, got -1.0"
    for values in (fitting, wrong):
        ending, reason = find_fault(away, SPACE, 1, values)
        assert ending == "unavailable"
        assert "away holds no finished dataset (no file COMPLETED)" in reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--trials=0",), "--trials must be at least 1, got 0"),
        (("--trials=2", "--grace-s=1"), "--grace-s must be at least twice --heartbeat-s, 120.0"),
        (("--trials=2", "--storage=x"), "--storage 'x' is not the URL of a database, such as"),
        (
            ("--trials=2",),  # checked in a process of its own
            "--space learning_rate: with 0.0, --learning-rate must be above 0, got 0.0",
        ),
    ],
)
def test_the_command_says_it(
    directory: Path, tmp_path: Path, options, sentence: str, capsys: pytest.CaptureFixture[str]
):
    command = [str(directory), f"--search-dir={tmp_path}", "--space=learning_rate=0..1"]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--pruner=none", "--evaluation-split=train", *options])
    assert ended.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"python -m pipeline.search: error: {sentence}")


@pytest.mark.slow
def test_a_dataset_that_is_away_is_waited_for_if_the_study_has_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    command = [str(tmp_path / "away"), f"--space={RATE}", "--trials=3", "--pruner=none"]
    with pytest.raises(SystemExit) as ended:
        main([*command, f"--search-dir={tmp_path / 'new'}"])
    assert ended.value.code == 2
    open_study(tmp_path / "begun")
    assert main([*command, f"--search-dir={tmp_path / 'begun'}"]) == STOPPED
    sentence = (
        "away holds no finished dataset (no file COMPLETED): check the path, or build it with "
        "python -m beam_jobs.build; the same command goes on once it is there again\n"
    )
    assert capsys.readouterr().err.endswith(sentence)


def test_a_disk_that_is_full_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(study_module, "RunLock", fail)
    assert main([f"--search-dir={tmp_path}", f"--space={RATE}", "--trials=3"]) == FAILED
    assert capsys.readouterr().err == (
        f"{tmp_path}: No space left on device: the same command goes on once this is put right\n"
    )


def test_a_database_that_is_away_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("psycopg")
    storage = "--storage=postgresql+psycopg://tillroll@127.0.0.1:1/searches"
    command = [f"--search-dir={tmp_path / 'search'}", f"--space={RATE}", "--trials=3", storage]
    assert main(command) == STOPPED
    error = capsys.readouterr().err
    assert error.startswith("the study can't be reached (connection failed: ")
    assert error.endswith(
        "the same command goes on once it can; if it never could, check --storage\n"
    )


@pytest.mark.slow
def test_a_study_keeps_its_version_and_refuses_another_search(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    open_study(tmp_path, definition=definition_of(version=7))
    command = [str(directory), f"--search-dir={tmp_path}", f"--space={RATE}", "--pruner=none"]
    for version, sentence in (
        ("", "there is no version 7"),
        ("--version=1", "version of the dataset: 7 then, 1 now"),
    ):
        with pytest.raises(SystemExit):
            main([*command, "--trials=3", "--evaluation-split=train", *filter(None, [version])])
        assert sentence in capsys.readouterr().err
