"""The cluster that the environment variable TF_CONFIG describes."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

_FORM = (
    '{"cluster": {"chief": ["host:port"], "worker": ["host:port", …], "ps": ["host:port"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
_ELSE = "Or unset it, to train on this machine alone."


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Processes that train together, and which of them this one is.

    Attributes:
      tasks: addresses of each kind of task, "host:port".
      kind: kind of this process's task, such as "worker".
      index: its number among its kind.
    """

    tasks: Mapping[str, tuple[str, ...]]
    kind: str
    index: int

    @classmethod
    def from_environment(cls) -> Self | None:
        """The cluster in TF_CONFIG; None where it names none.

        Raises:
          ValueError: it can't be understood.
        """
        text = os.environ.get("TF_CONFIG") or "{}"
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(
                f"TF_CONFIG is no JSON ({error}): {text[:80]!r}. Its form is {_FORM}. {_ELSE}"
            ) from error
        if not isinstance(found, dict) or not found.get("cluster"):
            return None
        try:
            tasks = {kind: tuple(addresses) for kind, addresses in found["cluster"].items()}
            kind, index = str(found["task"]["type"]), int(found["task"]["index"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"TF_CONFIG lacks something: {text[:200]!r}. Its form is {_FORM}. {_ELSE}"
            ) from error
        cluster = cls(tasks=tasks, kind=kind, index=index)
        if not 0 <= index < len(tasks.get(kind, ())):
            raise ValueError(
                f"TF_CONFIG says that this is task {kind} {index} of a cluster of {cluster}: each "
                "process needs a task of the cluster of its own, counted from 0."
            )
        return cluster

    def __str__(self) -> str:
        return ", ".join(f"{len(addresses)} {kind}" for kind, addresses in self.tasks.items())

    def __len__(self) -> int:
        return sum(map(len, self.tasks.values()))

    def check_parameter_servers(self) -> None:
        """Checks that it is one for ParameterServerStrategy.

        Raises:
          ValueError: it is not.
        """
        counts = Counter({kind: len(addresses) for kind, addresses in self.tasks.items()})
        fits = counts["chief"] == 1 and counts["worker"] >= 1 and counts["ps"] >= 1
        if not fits or set(self.tasks) - {"chief", "worker", "ps"}:
            raise ValueError(
                f"strategy 'parameter_server' can't use the cluster in TF_CONFIG, {self}: it takes "
                "1 chief, 1 or more worker and 1 or more ps. Name these, or choose another strategy"
            )
