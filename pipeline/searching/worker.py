"""One process of a search: takes trials of the study until all of them have ended."""

import time
from collections.abc import Callable

from optuna.trial import FrozenTrial, TrialState

from pipeline.searching.claims import Claim, ClaimOptions, Claims
from pipeline.searching.doubts import Doubts
from pipeline.searching.outcome import OutageError, Outcome, RunTrial
from pipeline.searching.space import Value, suggest
from pipeline.searching.study import SearchStudy
from pipeline.training.run_log import last_step

_IDLE_S = 1.0
_STATES = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    # So that Optuna's samplers learn of it: of failed trials they learn nothing.
    "diverged": TrialState.PRUNED,
    "refused": TrialState.FAIL,
    "error": TrialState.FAIL,
    "lost": TrialState.FAIL,
}
ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


def work(
    study: SearchStudy,
    run_trial: RunTrial,
    options: ClaimOptions,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    show: Callable[[int, dict[str, Value], Outcome], None] = lambda *_: None,
) -> bool:
    """Runs trials until all of the study have ended, whichever processes run them.

    Args:
      study: the study, defined.
      run_trial: runs a trial.
      options: options of claims.
      should_stop: whether this process was told to stop.
      show: called with the number, the values and the outcome of each trial that this process ends.

    Returns:
      Whether all trials have ended; False if this process was told to stop before.

    Raises:
      OutageError: the dataset is away; the trial waits.
      TrialsFailError: trials fail here that may train elsewhere; they wait.
    """
    doubts = Doubts()
    with Claims(study, options) as claims:
        while not should_stop():
            claim = claims.take(but=doubts.aside)
            if claim is not None:
                _run(study, claims, claim, run_trial, doubts, should_stop, show)
                continue
            left = [trial for trial in study.frozen_trials() if trial.state not in ENDED]
            if not left:
                return True
            if all(_waits(trial) and trial.number in doubts.aside for trial in left):
                doubts.settle()
            else:  # other processes have what is left, and one of them may be lost
                time.sleep(_IDLE_S)
    return all(trial.state in ENDED for trial in study.frozen_trials())


def _waits(trial: FrozenTrial) -> bool:
    return bool(trial.state == TrialState.WAITING)


def _run(
    study: SearchStudy,
    claims: Claims,
    claim: Claim,
    run_trial: RunTrial,
    doubts: Doubts,
    should_stop: Callable[[], bool],
    show: Callable[[int, dict[str, Value], Outcome], None],
) -> None:
    """Runs a trial to its end, or gives it back: on a stop, an outage, or a doubtful failure."""
    is_ended = False
    number, before = claim.trial.number, last_step(claim.folder)
    try:
        values = suggest(claim.trial, study.definition.space)
        outcome = _attempts(claims, claim, values, run_trial, should_stop)
        if outcome.ending == "stopped":
            return
        if outcome.ending == "unavailable":
            raise OutageError(
                f"trial {number} can't go on for now ({outcome.reason}): the same command goes on "
                "once this is put right"
            )
        if outcome.step > before or outcome.ending == "complete":
            doubts.note_training()
        if outcome.ending == "error" and doubts.has(number):
            claims.note_failure(claim, step=outcome.step)
            doubts.set_aside(number, outcome.reason, study.frozen_trials())
            return
        claims.finish(claim, _STATES[outcome.ending], outcome.value, because=outcome.reason)
        is_ended = True
        if not claim.is_lost.is_set():
            show(number, values, outcome)
    finally:
        if not is_ended:
            claims.give_back(claim)


def _attempts(
    claims: Claims,
    claim: Claim,
    values: dict[str, Value],
    run_trial: RunTrial,
    should_stop: Callable[[], bool],
) -> Outcome:
    """Runs a trial, again after errors, as often as it may be."""

    def must_stop() -> bool:
        return should_stop() or claim.is_lost.is_set()

    outcome = Outcome(ending="lost", step=last_step(claim.folder), reason="its process was lost")
    is_lost = claim.was_lost
    while True:
        if is_lost and not claims.count_loss(claim, step=outcome.step):
            return outcome
        outcome = run_trial(claim.trial, values, claim.folder, must_stop)
        if outcome.ending != "error":
            return outcome
        is_lost = True
