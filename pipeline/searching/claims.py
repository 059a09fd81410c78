"""Claims on trials: each trial has one process at a time, and another one when that is gone.

A trial that waits is claimed by making it run, which a storage lets one process do. What makes a
trial of a lost process wait again:

- On the same machine, its lock on the run folder: the kernel releases it with the process.
- Elsewhere, its heartbeat in the study: it has not changed for the grace period, by the clock of
  the process that looks. No clocks of two machines are compared.

A process that stops in order makes its trial wait again itself. Trials keep their number, their
values and their run folder, so a study never has more of them than it was made with.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from pipeline.searching.journal import JournalError
from pipeline.searching.study import STORAGE_ERRORS, SearchStudy
from pipeline.training.run_lock import RunFolderInUseError, RunLock

_LOCK = "search.lock"
_OWNER, _BEATS, _KERNEL = "owner", "heartbeats", "kernel"
_LOSSES, _FAILURES = "lost_attempts", "failures"
_SETTLED_S = 2.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, kw_only=True)
class ClaimOptions:
    """Options of claims on trials.

    Attributes:
      heartbeat_s: seconds from one sign of life in the study to the next.
      grace_s: seconds without one after which another machine takes a trial over.
      attempts: times that the process of a trial may be lost, or end with an error, without coming
        further than before; then the trial has failed. After errors, it fails for good only if
        other trials train on the machine.
    """

    heartbeat_s: float = 60.0
    grace_s: float = 180.0
    attempts: int = 3

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_s < float("inf"):
            raise ValueError(f"heartbeat_s must be above 0, got {self.heartbeat_s}")
        if not 2 * self.heartbeat_s <= self.grace_s < float("inf"):
            raise ValueError(
                f"grace_s must be at least twice `heartbeat_s`, {2 * self.heartbeat_s}, got "
                f"{self.grace_s}"
            )
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {self.attempts}")


@dataclass(frozen=True)
class Claim:
    """A trial that this process has; `is_lost` is set once another one has taken it over.

    Attributes:
      trial: Optuna's trial, which is running.
      folder: its run folder.
      is_lost: set where the process must let go of the trial.
      was_lost: whether another process had it, and is gone.
    """

    trial: optuna.Trial
    folder: Path
    is_lost: threading.Event
    was_lost: bool
    lock: RunLock


class Claims:
    """Takes trials of a study, and shows in it that this process lives, as a context manager."""

    def __init__(self, study: SearchStudy, options: ClaimOptions) -> None:
        self._study, self._options = study, options
        host = socket.gethostname()
        self._owner = f"process {os.getpid()} on {host}, {uuid.uuid4().hex[:8]}"
        self._kernel = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else host
        # By trial: its newest heartbeat, and when this process saw it first.
        self._seen: dict[int, tuple[Any, float]] = {}
        self._current: Claim | None = None
        self._last_beat = time.monotonic()
        self._ended = threading.Event()
        self._mutex = threading.Lock()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> "Claims":
        self._watch()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def take(self, *, but: Collection[int] = ()) -> Claim | None:
        """Claims a trial that waits, or whose process is lost; those come first.

        Args:
          but: numbers of trials to leave to others.

        Returns:
          The claim; None if there is no such trial now.
        """
        trials = [trial for trial in self._study.frozen_trials() if trial.number not in but]
        lost = [trial for trial in trials if self._may_be_lost(trial)]
        waiting = [trial for trial in trials if trial.state == TrialState.WAITING]
        begun_first = sorted(
            waiting, key=lambda trial: (trial.user_attrs.get(_FAILURES, 0), not trial.params)
        )
        for trial in (*lost, *begun_first):
            if claim := self._try(trial):
                with self._mutex:
                    self._current, self._last_beat = claim, time.monotonic()
                return claim
        return None

    def give_back(self, claim: Claim) -> None:
        """Makes the trial wait for whoever comes next."""
        self._let_go()
        if not claim.is_lost.is_set():
            self._study.storage.set_trial_state_values(self._id(claim.trial), TrialState.WAITING)
        claim.lock.release()

    def finish(
        self, claim: Claim, state: TrialState, value: float | None, *, because: str = ""
    ) -> None:
        """Ends the trial in the study, unless another process has taken it over."""
        self._let_go()
        if not claim.is_lost.is_set() and self._study.study is not None:
            if because:
                claim.trial.set_user_attr("reason", because)
            self._study.study.tell(
                claim.trial,
                value if state == TrialState.COMPLETE else None,
                state=state,
                skip_if_finished=True,
            )
        claim.lock.release()

    def count_loss(self, claim: Claim, *, step: int) -> bool:
        """Notes that an attempt at a trial was lost at a step.

        Returns:
          Whether there may be another attempt: fewer were lost since the run came this far.
        """
        farthest, count = claim.trial.user_attrs.get(_LOSSES, (step, 0))
        count = 1 if step > farthest else count + 1
        claim.trial.set_user_attr(_LOSSES, [max(step, farthest), count])
        return bool(count < self._options.attempts)

    def note_failure(self, claim: Claim, *, step: int) -> None:
        """Notes that the trial failed here; it comes last, with all its attempts, in the next."""
        failures = claim.trial.user_attrs.get(_FAILURES, 0)
        claim.trial.set_user_attr(_FAILURES, failures + 1)
        claim.trial.set_user_attr(_LOSSES, [step, 0])

    def _let_go(self) -> None:
        with self._mutex:
            self._current = None

    def _id(self, trial: optuna.Trial | FrozenTrial) -> int:
        return self._study.trial_id(trial.number)

    def _may_be_lost(self, trial: FrozenTrial) -> bool:
        if trial.state != TrialState.RUNNING:
            return False
        if trial.user_attrs.get(_KERNEL) == self._kernel:
            return True  # its lock tells
        return self._is_silent(trial)

    def _is_silent(self, trial: FrozenTrial) -> bool:
        beat, since = self._seen.get(trial.number, (None, time.monotonic()))
        is_same = beat == _beat_of(trial)
        return is_same and time.monotonic() - since >= self._options.grace_s

    def _try(self, seen: FrozenTrial) -> Claim | None:
        """Claims a trial unless another process has it, or gets it first."""
        folder = self._study.trial_folder(seen.number)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = RunLock(str(folder), name=_LOCK)
        except RunFolderInUseError:
            return None
        is_lost = seen.state == TrialState.RUNNING
        if is_lost and not lock.is_held and not self._is_silent(seen):
            lock.release()
            return None
        storage, trial_id = self._study.storage, self._study.trial_id(seen.number)
        try:
            now = storage.get_trial(trial_id)
            if is_lost and now.state == TrialState.RUNNING and _beat_of(now) == _beat_of(seen):
                storage.set_trial_state_values(trial_id, TrialState.WAITING)
            claimed = storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        except optuna.exceptions.UpdateFinishedTrialError:
            claimed = False
        if not claimed:
            lock.release()
            return None
        self._write_beat(trial_id, 0)
        storage.set_trial_user_attr(trial_id, _KERNEL, self._kernel)
        if is_lost and not self._keeps(trial_id, now):
            lock.release()
            return None
        return Claim(self._study.begin(seen.number), folder, threading.Event(), is_lost, lock)

    def _keeps(self, trial_id: int, before: FrozenTrial) -> bool:
        """Waits, where locks say nothing, for others that take the trial over in this moment."""
        if before.user_attrs.get(_KERNEL) == self._kernel:
            return True
        time.sleep(_SETTLED_S)
        return self._is_mine(trial_id)

    def _is_mine(self, trial_id: int) -> bool:
        trial = self._study.storage.get_trial(trial_id)
        return trial.user_attrs.get(_OWNER) == self._owner and trial.state == TrialState.RUNNING

    def _write_beat(self, trial_id: int, number: int) -> None:
        self._study.storage.set_trial_user_attr(trial_id, _OWNER, self._owner)
        self._study.storage.set_trial_user_attr(trial_id, _BEATS, number)

    def _live(self) -> None:
        """Writes heartbeats and watches those of others, until the end."""
        number = 0
        while not self._ended.wait(self._options.heartbeat_s):
            number += 1
            with self._mutex:
                claim = self._current
                if claim is None:
                    self._last_beat = time.monotonic()
            try:
                self._watch()
                if claim is not None:
                    self._beat(claim, number)
            except (*STORAGE_ERRORS, OSError, JournalError):  # the latter two of a study in a file
                # One that is not written in time is as good as none: others take the trial over.
                if claim and time.monotonic() - self._last_beat > self._options.grace_s / 2:
                    claim.is_lost.set()

    def _beat(self, claim: Claim, number: int) -> None:
        trial_id = self._id(claim.trial)
        with self._mutex:
            if self._current is not claim:
                return
            if not self._is_mine(trial_id):
                claim.is_lost.set()
                return
            self._study.storage.set_trial_user_attr(trial_id, _BEATS, number)
            self._last_beat = time.monotonic()

    def _watch(self) -> None:
        """Notes which trials have shown a sign of life since the last look."""
        now = time.monotonic()
        for trial in self._study.frozen_trials():
            beat = _beat_of(trial)
            if trial.number not in self._seen or self._seen[trial.number][0] != beat:
                self._seen[trial.number] = (beat, now)


def _beat_of(trial: FrozenTrial) -> tuple[Any, Any, str]:
    attributes = trial.user_attrs
    return attributes.get(_OWNER), attributes.get(_BEATS), trial.state.name
