"""The table, the pictures and the summary of a search."""

from pathlib import Path

import pytest

pytest.importorskip("optuna")

from pipeline.searching.claims import ClaimOptions
from pipeline.searching.outcome import Outcome
from pipeline.searching.report import importance_of, summary, write_report
from pipeline.searching.study import SearchStudy
from pipeline.searching.worker import work
from tests.support.searches import FakeRun, definition_of, open_study


def ended(folder: Path, *outcomes: Outcome, objective: str = "validation/accuracy") -> SearchStudy:
    definition = definition_of(objective=objective)
    study = open_study(folder, trials=len(outcomes), definition=definition)
    assert work(study, FakeRun(*outcomes), ClaimOptions())
    return study


def complete(value: float) -> Outcome:
    return Outcome(ending="complete", value=value)


def test_the_table_has_a_row_for_each_trial_and_pictures_lie_beside_it(tmp_path: Path):
    reason = "its trainer ended with signal SIGKILL: it said nothing"
    failed = Outcome(ending="refused", reason=reason)
    study = ended(tmp_path, *map(complete, (0.5, 0.7, 0.6, 0.9)), failed)
    write_report(study)
    header, first, *_, last = (tmp_path / "trials.csv").read_text().splitlines()
    assert header == (
        "trial,state,validation/accuracy,step,learning_rate,model.width,run_dir,reason"
    )
    assert first == "0,complete,0.5,,0.001,8,trials/00000,"
    assert last.startswith("4,fail,,")
    assert last.endswith(f",{reason}")
    names = {"trials.csv", "options.png", "progress.png", "importance.png"}
    assert names < {path.name for path in tmp_path.iterdir()}
    assert not list(tmp_path.glob("*.partial"))


def test_a_report_before_any_trial_has_ended(tmp_path: Path):
    study = open_study(tmp_path, trials=2)
    write_report(study)
    assert (tmp_path / "trials.csv").read_text().splitlines()[1] == "0,waiting,,,,,trials/00000,"
    assert not list(tmp_path.glob("*.png"))
    assert importance_of(study) == {}
    assert summary(study) == (
        f"study {tmp_path.name}: 2 trials, 2 waiting: none has a result, see "
        f"{tmp_path / 'trials.csv'}"
    )


@pytest.mark.parametrize(
    ("objective", "values", "lines"),
    [
        (
            "validation/accuracy",
            (0.6, 0.9, 0.7),
            "1 - validation/accuracy: 0.1, 75% less than the defaults' 0.4 (trial 0)",
        ),
        (
            "validation/loss",
            (0.6, 0.3, 0.7),
            "validation/loss: 0.3, 50% less than the defaults' 0.6 (trial 0)",
        ),
        (
            "validation/accuracy",
            (0.6, 0.5, 0.4),
            "trial 0, which has the defaults, is the best",
        ),
    ],
)
def test_the_summary_compares_the_best_with_the_defaults(tmp_path, objective, values, lines):
    study = ended(tmp_path, *map(complete, values), objective=objective)
    text = summary(study).splitlines()
    assert text[0] == f"study {tmp_path.name}: 3 trials, 3 complete"
    assert text[1].split() == ["trial", objective, "learning_rate", "model.width"]
    best = max if objective == "validation/accuracy" else min
    number = values.index(best(values))
    assert text[2].split()[:2] == [str(number), str(values[number])]
    assert text[5:] == [
        lines,
        f"run folder of the best trial: {tmp_path}/trials/0000{number}",
        f"all trials: {tmp_path / 'trials.csv'}; pictures beside it",
    ]


def test_importance_adds_up(tmp_path: Path):
    study = ended(tmp_path, *(complete(value) for value in (0.1, 0.5, 0.4, 0.9, 0.3, 0.8)))
    importance = importance_of(study)
    assert importance.keys() == {"learning_rate", "model.width"}
    assert sum(importance.values()) == pytest.approx(1)
    assert list(importance.values()) == sorted(importance.values(), reverse=True)


def test_there_is_no_importance_of_equal_values(tmp_path: Path):
    assert importance_of(ended(tmp_path, *[complete(0.5)] * 5)) == {}
