"""The definition that all trials of a study have in common; the study keeps it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)

from pipeline.searching.space import Space, Value, flag_of

LOSS = "validation/loss"


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The definition of a search.

    Attributes:
      space: ranges of the options that differ between trials, by option.
      objective: figure of the log to optimize, such as "validation/accuracy". The loss is
        minimized; all others are metrics, and maximized.
      digest: digest of the dataset.
      version: version of the dataset.
      options: the other options of `pipeline.train` that shape a run, by name.
    """

    space: Space
    objective: str
    digest: str
    version: int
    options: Mapping[str, Value]

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        """The direction of Optuna's study."""
        return "minimize" if self.is_minimized else "maximize"

    @property
    def is_minimized(self) -> bool:
        """True where a lower value is better: so it is with the loss, and with no metric."""
        return self.objective.split("/")[:2] == LOSS.split("/")

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads the definition that a study keeps."""
        values = json.loads(text)
        space = {name: json_to_distribution(each) for name, each in values.pop("space").items()}
        return cls(space=space, **values)

    def to_json(self) -> str:
        """Writes the definition as text for the study."""
        values: dict[str, Any] = {
            "space": {name: distribution_to_json(each) for name, each in self.space.items()},
            "objective": self.objective,
            "digest": self.digest,
            "version": self.version,
            "options": dict(self.options),
        }
        return json.dumps(values, sort_keys=True)

    def changes(self, then: Self) -> list[str]:
        """Lists what differs from the definition `then`, a line each."""
        return [
            f"{name}: {old} then, {new} now"
            for name, (old, new) in _pairs(then._described(), self._described()).items()
            if old != new
        ]

    def _described(self) -> dict[str, Any]:
        return {
            **{f"--space {name}": describe(each) for name, each in self.space.items()},
            "--objective": self.objective,
            "dataset": self.digest,
            "version of the dataset": self.version,
            **{flag_of(name): value for name, value in self.options.items()},
        }


def _pairs(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys((*then, *now))
    return {name: (then.get(name, "not there"), now.get(name, "not there")) for name in names}


def describe(distribution: BaseDistribution) -> str:
    """Writes a range as one types it."""
    if isinstance(distribution, CategoricalDistribution):
        return ",".join(map(str, distribution.choices))
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    log = "log:" if distribution.log else ""
    return f"{log}{distribution.low}..{distribution.high}"
