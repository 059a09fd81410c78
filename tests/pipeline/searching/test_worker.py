"""Processes of a search: each trial once, whoever dies."""

import json
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from optuna.trial import FrozenTrial, TrialState

from pipeline.searching import claims as claims_module
from pipeline.searching.claims import ClaimOptions, Claims
from pipeline.searching.journal import JournalError
from pipeline.searching.outcome import OutageError, Outcome, TrialsFailError
from pipeline.searching.space import suggest
from pipeline.searching.study import SearchStudy
from pipeline.searching.worker import work
from tests.support.searches import FIRST, FakeRun, open_study

QUICK = ClaimOptions(heartbeat_s=0.05, grace_s=0.2)
SLOW = ClaimOptions()


def states(study: SearchStudy) -> list[str]:
    return [trial.state.name for trial in study.frozen_trials()]


def lose(study: SearchStudy, *, kernel: str | None = None) -> tuple[int, dict]:
    """Leaves a trial as a killed process does: running, and its lock free."""
    with Claims(study, SLOW) as claims:
        claim = claims.take()
        assert claim is not None
        values = suggest(claim.trial, study.definition.space)
    claim.lock.release()
    if kernel:
        claim.trial.set_user_attr("kernel", kernel)
    return claim.trial.number, values


@pytest.mark.parametrize("workers", [1, 4])
def test_each_trial_is_run_once(tmp_path: Path, workers: int):
    run = FakeRun(during=lambda: time.sleep(0.01))
    done = []

    def work_once() -> None:
        done.append(work(open_study(tmp_path, trials=9), run, SLOW))

    threads = [threading.Thread(target=work_once) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * workers
    assert sorted(number for number, _, _ in run.calls) == list(range(9))
    assert {folder.name for _, _, folder in run.calls} == {f"{n:05d}" for n in range(9)}
    study = open_study(tmp_path, trials=9)
    assert [trial.value for trial in study.frozen_trials()] == list(map(float, range(9)))
    assert len(study.study.trials) == 9
    assert work(study, run, SLOW)  # there is nothing left
    assert len(run.calls) == 9


def test_a_trial_of_a_process_that_was_killed_here_goes_on_at_once(tmp_path: Path):
    study = open_study(tmp_path)
    number, values = lose(study)
    assert states(study) == ["RUNNING", "WAITING", "WAITING"]
    run = FakeRun()
    assert work(study, run, SLOW)
    assert run.calls[0] == (number, values, study.trial_folder(number))
    assert values == FIRST
    assert states(study) == ["COMPLETE"] * 3
    assert len(run.calls) == len(study.study.trials) == 3


def test_a_trial_whose_process_lives_is_left_alone(tmp_path: Path):
    study = open_study(tmp_path, trials=1)
    with Claims(study, SLOW) as holder, Claims(open_study(tmp_path, trials=1), QUICK) as other:
        claim = holder.take()
        assert claim is not None
        assert other.take() is None
        holder.give_back(claim)
        again = other.take()
        assert again is not None
        assert again.trial.number == claim.trial.number
        assert not again.was_lost
        other.finish(again, TrialState.COMPLETE, 1.0)
        assert holder.take() is None
    assert states(study) == ["COMPLETE"]


def test_another_machine_takes_a_trial_over_after_the_grace_period_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(claims_module, "_SETTLED_S", 0.0)
    study = open_study(tmp_path, trials=1)
    lose(study, kernel="of another machine")
    with Claims(study, ClaimOptions(heartbeat_s=100, grace_s=1000)) as patient:
        assert patient.take() is None
    with Claims(study, QUICK) as claims:
        while (claim := claims.take()) is None:
            time.sleep(0.02)
        assert claim.was_lost
        claims.finish(claim, TrialState.COMPLETE, 1.0)
    assert states(study) == ["COMPLETE"]


def test_a_process_whose_trial_was_taken_over_lets_go_of_it(tmp_path: Path):
    """Its machine was cut off, say, and comes back."""
    study = open_study(tmp_path, trials=1)
    with Claims(study, QUICK) as claims:
        claim = claims.take()
        assert claim is not None
        claim.trial.set_user_attr("owner", "another process")
        assert claim.is_lost.wait(30)
        claims.finish(claim, TrialState.COMPLETE, 1.0)
        assert states(study) == ["RUNNING"]
        claims.give_back(claim)
        assert states(study) == ["RUNNING"]


@pytest.mark.parametrize("error", [OSError("Stale file handle"), JournalError("damaged")])
def test_a_process_that_can_not_show_a_sign_of_life_lets_go_of_its_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
):
    study = open_study(tmp_path, trials=1)
    is_away = threading.Event()

    def read() -> list[FrozenTrial]:
        if is_away.is_set():
            raise error
        return study.study.get_trials(deepcopy=False)

    monkeypatch.setattr(study, "frozen_trials", read)
    with Claims(study, QUICK) as claims:
        claim = claims.take()
        assert claim is not None
        is_away.set()
        assert claim.is_lost.wait(30)
        is_away.clear()
        claims.give_back(claim)


def test_a_stop_gives_the_trial_back(tmp_path: Path):
    study = open_study(tmp_path)
    stop = threading.Event()
    run = FakeRun(Outcome(ending="stopped"), during=stop.set)
    assert not work(study, run, SLOW, should_stop=stop.is_set)
    assert states(study) == ["WAITING"] * 3
    assert work(study, run, SLOW)
    assert [number for number, _, _ in run.calls] == [0, 0, 1, 2]
    assert run.calls[0] == run.calls[1]


def test_outcomes_become_states(tmp_path: Path):
    study = open_study(tmp_path, trials=5)
    outcomes = [
        Outcome(ending="complete", value=0.5),
        Outcome(ending="pruned"),
        Outcome(ending="diverged", reason="the loss is nan"),
        Outcome(ending="refused", reason="they do not fit"),
    ]
    shown = []
    assert work(study, FakeRun(*outcomes), SLOW, show=lambda *what: shown.append(what))
    assert states(study) == ["COMPLETE", "PRUNED", "PRUNED", "FAIL", "COMPLETE"]
    reasons = [trial.user_attrs.get("reason") for trial in study.frozen_trials()]
    assert reasons == [None, None, "the loss is nan", "they do not fit", None]
    assert [what[2].ending for what in shown] == [
        *("complete", "pruned", "diverged", "refused", "complete"),
    ]


def test_errors_are_tried_again_as_long_as_the_run_comes_further(tmp_path: Path):
    study = open_study(tmp_path, trials=2)
    steps = [5, 5, 8, 8, 8]
    errors = [Outcome(ending="error", step=step, reason=f"died at {step}") for step in steps]
    fine = Outcome(ending="complete", value=1.0, step=10)
    again = [Outcome(ending="error", step=8, reason=f"died in attempt {n}") for n in range(3)]
    run = FakeRun(*errors, fine, *again)
    assert work(study, run, ClaimOptions(attempts=3))
    # Once another one has trained, with all its attempts.
    assert [number for number, _, _ in run.calls] == [0] * 5 + [1] + [0] * 3
    assert states(study) == ["FAIL", "COMPLETE"]
    assert study.frozen_trials()[0].user_attrs["reason"] == "died in attempt 2"


def test_a_machine_on_which_every_trial_fails_costs_none(tmp_path: Path):
    study = open_study(tmp_path, trials=4)
    error = Outcome(ending="error", reason="its trainer ended with signal SIGABRT: no device")
    broken = FakeRun(*[error] * 99)
    sentence = (
        r"^trials 0 and 1 failed, and no other trial has trained here since \(its trainer ended "
        r"with signal SIGABRT: no device\): as the fault may be this machine's, the study keeps"
    )
    with pytest.raises(TrialsFailError, match=sentence):
        work(study, broken, ClaimOptions(attempts=3))
    assert [number for number, _, _ in broken.calls] == [0] * 3 + [1] * 3
    assert states(study) == ["WAITING"] * 4
    run = FakeRun()
    assert work(study, run, SLOW)
    # What failed elsewhere comes last, so that it keeps no machine from what trains.
    assert [number for number, _, _ in run.calls] == [2, 3, 0, 1]
    assert states(study) == ["COMPLETE"] * 4


def test_the_last_trials_fail_for_good_where_others_have_trained(tmp_path: Path):
    study = open_study(tmp_path, trials=3)
    error = Outcome(ending="error", reason="no memory")
    outcomes = [Outcome(ending="pruned", step=10), *[error] * 4]
    assert work(study, FakeRun(*outcomes), ClaimOptions(attempts=1))
    assert states(study) == ["PRUNED", "FAIL", "FAIL"]
    alone = open_study(tmp_path / "alone", trials=1)
    with pytest.raises(
        TrialsFailError, match=r"^trial 0 failed, and no other .*give more --trials"
    ):
        work(alone, FakeRun(error), ClaimOptions(attempts=1))
    assert states(alone) == ["WAITING"]


def test_an_outage_gives_the_trial_back(tmp_path: Path):
    study = open_study(tmp_path)
    run = FakeRun(Outcome(ending="unavailable", reason="no dataset"))
    sentence = r"^trial 0 can't go on for now \(no dataset\): the same command goes on once this"
    with pytest.raises(OutageError, match=sentence):
        work(study, run, SLOW)
    assert states(study) == ["WAITING"] * 3
    assert work(study, run, SLOW)
    assert [number for number, _, _ in run.calls] == [0, 0, 1, 2]


def test_a_trial_that_takes_its_process_along_each_time_fails(tmp_path: Path):
    study = open_study(tmp_path, trials=1)
    for _ in range(2):
        lose(study)
        with Claims(study, SLOW) as claims:
            claim = claims.take()
            assert claim is not None
            assert claim.was_lost
            assert claims.count_loss(claim, step=0)
            claim.lock.release()
    run = FakeRun()
    assert work(study, run, ClaimOptions(attempts=3))
    assert run.calls == []
    assert states(study) == ["FAIL"]
    assert study.frozen_trials()[0].user_attrs["reason"] == "its process was lost"


def test_an_error_of_the_program_gives_the_trial_back(tmp_path: Path):
    study = open_study(tmp_path, trials=1)

    def fail() -> None:
        raise OSError("of the test")

    with pytest.raises(OSError, match="of the test"):
        work(study, FakeRun(during=fail), SLOW)
    assert states(study) == ["WAITING"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"heartbeat_s": 0}, "heartbeat_s must be above 0, got 0"),
        ({"grace_s": 100}, "grace_s must be at least twice `heartbeat_s`, 120.0, got 100"),
        ({"attempts": 0}, "attempts must be at least 1, got 0"),
    ],
)
def test_claims_that_make_no_sense(options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        ClaimOptions(**options)


def test_a_trial_keeps_what_it_has_come_to(tmp_path: Path):
    """Its loss counter looks at the run's log."""
    study = open_study(tmp_path, trials=1)
    number, _ = lose(study)
    log = study.trial_folder(number) / "log.jsonl"
    log.write_text(json.dumps({"step": 7, "loss": 1.0}) + "\n")
    assert work(study, FakeRun(), SLOW)
    assert study.frozen_trials()[0].user_attrs["lost_attempts"] == [7, 1]
