"""Doubts about failed trials: the fault may be the machine's, and not that of their values."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from pipeline.searching.outcome import TrialsFailError

_MOST = 2


class Doubts:
    """Trials that have failed in this process, and what the others say of it.

    Where a device is broken or a disk is full, every trial fails. So one that fails is set aside
    and waits in the study. Once another one has trained here, the machine is fine: should the first
    fail again, its values are at fault. If the next one fails as well, the process ends, and the
    study loses no trial.

    Attributes:
      aside: reasons of the trials that are set aside, by number.
    """

    def __init__(self) -> None:
        self.aside: dict[int, str] = {}
        self._cleared: set[int] = set()
        self._has_trained = False

    def note_training(self) -> None:
        """Notes that a trial has trained in this process."""
        self._has_trained = True
        self._cleared |= self.aside.keys()
        self.aside.clear()

    def has(self, number: int) -> bool:
        """Tells whether the machine may be at fault if this trial fails."""
        return number not in self._cleared

    def set_aside(self, number: int, reason: str, trials: Sequence[FrozenTrial]) -> None:
        """Leaves a trial that has failed to others, until one has trained here.

        Args:
          number: number of the trial.
          reason: why it failed.
          trials: all trials of the study.

        Raises:
          TrialsFailError: it is the second one in a row, and others wait.
        """
        self.aside[number] = reason
        others = [trial for trial in trials if trial.number not in self.aside]
        if len(self.aside) >= _MOST and any(each.state == TrialState.WAITING for each in others):
            raise self._error()

    def settle(self) -> None:
        """Ends doubts where no other trial is left: what has trained before decides.

        Raises:
          TrialsFailError: no trial has trained in this process.
        """
        if not self._has_trained:
            raise self._error()
        self.note_training()

    def _error(self) -> TrialsFailError:
        numbers = " and ".join(map(str, sorted(self.aside)))
        [*_, reason] = self.aside.values()
        return TrialsFailError(
            f"trial{'s' * (len(self.aside) > 1)} {numbers} failed, and no other trial has trained "
            f"here since ({reason}): as the fault may be this machine's, the study keeps what "
            "failed for another attempt. The same command goes on once this is put right; if the "
            "values are at fault, give more --trials, to show that others train here"
        )
