"""The orders and balances that are compared."""

from dataclasses import dataclass
from typing import Literal

# Shares of the steps: the last fifth begins at 0.8 of them.
_LAST_FIFTH, _HALF = 0.8, 0.5


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Setting of a training run.

    Attributes:
      order: "dealt" by the plan, or a "buffer" of records from which batches are drawn.
      phases: (alpha, share of the steps at which it begins).
      logit_adjustment: of the task.
      new_head: the last fifth of the steps trains a new head alone, on layouts with equal shares.
    """

    order: Literal["dealt", "buffer"] = "dealt"
    phases: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    logit_adjustment: float = 0.0
    new_head: bool = False


def _alpha(value: float) -> Setting:
    return Setting(phases=((value, 0.0),))


SETTINGS = {
    "buffer": Setting(order="buffer"),
    "dealt": Setting(),
    "alpha 0.5": _alpha(0.5),
    "alpha 0.2": _alpha(0.2),
    "alpha 0": _alpha(0.0),
    "phases": Setting(phases=((1.0, 0.0), (0.5, _HALF), (0.0, _LAST_FIFTH))),
    "logits": Setting(logit_adjustment=1.0),
    "new head": Setting(new_head=True),
}
NATURAL = "dealt"
