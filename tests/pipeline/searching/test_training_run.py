"""Trials as training runs: what counts of a log, and how the trainer's end is understood."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from pipeline.searching import training_run
from pipeline.searching.outcome import Outcome
from pipeline.searching.training_run import ObjectiveError, TrainingRun, objective_of
from tests.support.searches import definition_of, open_study

ACCURACY = definition_of(objective="validation/accuracy", options={"evaluate_every": 10})

# Stands for the trainer: logs evaluations, as its arguments say, and waits to be told to stop.
TRAINER = """import json, signal, sys, time
from pathlib import Path

folder = Path(next(a for a in sys.argv if a.startswith("--run-dir=")).partition("=")[2])
plan = json.loads(next(a for a in sys.argv if a.startswith("--plan=")).partition("=")[2])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
with (folder / "log.jsonl").open("a") as log:
    for line in plan["lines"]:
        log.write(json.dumps(line) + "\\n")
        log.flush()
if plan["waits"]:
    time.sleep(60)
print("error: " + plan["says"], file=sys.stderr)
sys.exit(plan["status"])
"""


def evaluation(step: int, loss: float | None, accuracy: float | None) -> dict:
    return {"step": step, "validation/loss": loss, "validation/accuracy": accuracy}


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ([], None),
        ([{"step": 5, "loss": 0.1}], None),
        ([evaluation(5, 0.5, 0.7), evaluation(10, 0.4, 0.6)], 0.6),
        ([evaluation(5, 0.4, 0.7), evaluation(10, 0.5, 0.9)], 0.7),
        ([evaluation(5, None, 0.7), evaluation(10, 0.5, 0.9)], 0.9),
        ([evaluation(5, None, 0.7)], None),
        ([evaluation(5, 0.3, None), evaluation(10, 0.5, 0.9)], 0.9),
    ],
)
def test_the_evaluation_of_the_lowest_loss_counts(lines: list[dict], value: float | None):
    assert objective_of(lines, ACCURACY) == value


def test_an_objective_that_evaluations_do_not_have():
    definition = definition_of(objective="validation/f1")
    with pytest.raises(ObjectiveError) as error:
        objective_of([evaluation(5, 0.4, 0.7)], definition)
    assert str(error.value) == (
        "--objective validation/f1: evaluations have no such figure, choose among "
        "validation/loss, validation/accuracy"
    )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a trial with a program in place of the trainer."""
    program = tmp_path / "trainer.py"
    program.write_text(TRAINER)
    popen = training_run.subprocess.Popen

    def start(command: list[str], **options):
        assert command[1:3] == ["-m", "pipeline.searching.trainer_process"]
        return popen([sys.executable, str(program), *command[3:]], **options)

    monkeypatch.setattr(training_run.subprocess, "Popen", start)
    monkeypatch.setattr(training_run, "_POLL_S", 0.05)

    def run_it(*lines: dict, status: int = 0, waits: bool = False, **options) -> Outcome:
        plan = {"lines": lines, "status": status, "waits": waits, "says": "of the test"}
        study = options.pop("study", None) or open_study(tmp_path / "s", definition=ACCURACY)
        folder = study.trial_folder(options.pop("number", 0))
        folder.mkdir(parents=True)
        trial = study.begin(int(folder.name))
        should_stop = options.pop("should_stop", lambda: False)
        fault = options.pop("fault", ("error", ""))
        made = TrainingRun(ACCURACY, [f"--plan={json.dumps(plan)}"], lambda _: fault)
        return made(trial, {"learning_rate": 0.1}, folder, should_stop)

    return run_it


FINE = evaluation(10, 0.5, 0.7)


@pytest.mark.parametrize(
    ("lines", "status", "outcome"),
    [
        ([FINE], 0, Outcome(ending="complete", value=0.7, step=10)),
        (
            [evaluation(10, None, 0.7)],
            0,
            Outcome(ending="diverged", step=10, reason="no loss of an evaluation is finite"),
        ),
        (
            [{"step": 5, "loss": 0.1}, {"step": 6, "loss": None}],
            1,
            Outcome(ending="diverged", step=6, reason="of the test"),
        ),
        (
            [{"step": 5, "loss": 0.1}],
            1,
            Outcome(ending="error", step=5, reason="its trainer ended with status 1: of the test"),
        ),
    ],
)
def test_how_the_trainer_ended(run, lines: list[dict], status: int, outcome: Outcome):
    assert run(*lines, status=status) == outcome


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (("refused", "they do not fit"), Outcome(ending="refused", reason="they do not fit")),
        (("unavailable", "it is away"), Outcome(ending="unavailable", reason="it is away")),
        (("error", ""), Outcome(ending="error", reason="of the test")),
    ],
)
def test_values_that_are_refused_are_checked_once_more(run, fault, outcome: Outcome):
    assert run(status=2, fault=fault) == outcome


def test_a_trial_that_is_worse_than_others_is_pruned(run, tmp_path: Path):
    study = open_study(tmp_path / "s", definition=ACCURACY, pruner="asha")
    assert run(evaluation(10, 0.5, 0.7), study=study).ending == "complete"
    worse = run(evaluation(10, 0.6, 0.6), waits=True, study=study, number=1)
    assert worse == Outcome(ending="pruned", step=10)
    better = run(evaluation(10, 0.4, 0.8), study=study, number=2)
    assert better.ending == "complete"
    assert [trial.intermediate_values for trial in study.frozen_trials()] == [
        {10: 0.7},
        {10: 0.6},
        {10: 0.8},
    ]


def test_the_trial_with_the_defaults_is_never_pruned(run, tmp_path: Path):
    study = open_study(tmp_path / "s", definition=ACCURACY, pruner="asha")
    assert run(evaluation(10, 0.4, 0.8), study=study, number=1).ending == "complete"
    assert run(evaluation(10, 0.6, 0.1), study=study, number=0).ending == "complete"


def test_a_trial_that_goes_on_reports_no_evaluation_twice(run, tmp_path: Path, recwarn):
    study = open_study(tmp_path / "s", definition=ACCURACY)
    study.begin(1).report(0.7, 10)
    assert run(FINE, evaluation(20, 0.4, 0.8), study=study, number=1).value == 0.8
    assert study.frozen_trials()[1].intermediate_values == {10: 0.7, 20: 0.8}
    assert [str(each.message) for each in recwarn if "reported" in str(each.message)] == []


def test_a_stop_is_passed_on(run):
    assert run(FINE, waits=True, should_stop=lambda: True).ending == "stopped"
