"""The cluster that the environment variable TF_CONFIG describes."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pipeline.distribution.peers import host_and_port

_FORM = (
    '{"cluster": {"chief": ["host:port"], "worker": ["host:port", …], "ps": ["host:port"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
_ELSE = "Or unset it, to train on this machine alone."


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Processes that train together, and the task of this process.

    Attributes:
      tasks: addresses "host:port" of the tasks of each kind.
      kind: kind of this process's task, such as "worker".
      index: its index among the tasks of its kind.
    """

    tasks: Mapping[str, tuple[str, ...]]
    kind: str
    index: int

    @classmethod
    def from_environment(cls) -> Self | None:
        """Reads the cluster from TF_CONFIG; returns None if it names none.

        Raises:
          ValueError: TF_CONFIG can't be understood.
        """
        text = os.environ.get("TF_CONFIG") or "{}"
        try:
            config = json.loads(text)
        except ValueError as error:
            raise ValueError(
                f"TF_CONFIG is not JSON ({error}): {text[:80]!r}. Its form is {_FORM}. {_ELSE}"
            ) from error
        if not isinstance(config, dict) or not config.get("cluster"):
            return None
        try:
            listed = dict(config["cluster"].items())
            kind, index = str(config["task"]["type"]), int(config["task"]["index"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"TF_CONFIG lacks something: {text[:200]!r}. Its form is {_FORM}. {_ELSE}"
            ) from error
        tasks = {name: _addresses(name, addresses) for name, addresses in listed.items()}
        cluster = cls(tasks=tasks, kind=kind, index=index)
        if not 0 <= index < len(tasks.get(kind, ())):
            raise ValueError(
                f"TF_CONFIG says that this is task {kind} {index} of a cluster of {cluster}: give "
                "each process a task of the cluster of its own, counted from 0."
            )
        counts = Counter(address for addresses in tasks.values() for address in addresses)
        if repeated := [address for address, count in counts.items() if count > 1]:
            raise ValueError(
                f"TF_CONFIG has the address {repeated[0]} {counts[repeated[0]]} times: give each "
                "task an address of its own"
            )
        return cluster

    def __str__(self) -> str:
        return ", ".join(f"{len(addresses)} {kind}" for kind, addresses in self.tasks.items())

    def __len__(self) -> int:
        return sum(map(len, self.tasks.values()))

    @property
    def address(self) -> str:
        """Address of this process."""
        return self.tasks[self.kind][self.index]

    def peers(self, *kinds: str) -> dict[str, str]:
        """Returns the names of the other tasks of some kinds, such as "worker 1", by address."""
        return {
            address: f"{kind} {index}"
            for kind in kinds
            for index, address in enumerate(self.tasks.get(kind, ()))
            if (kind, index) != (self.kind, self.index)
        }

    def check_parameter_servers(self) -> None:
        """Checks that ParameterServerStrategy can use this cluster.

        Raises:
          ValueError: tasks are missing, or of other kinds.
        """
        counts = Counter({kind: len(addresses) for kind, addresses in self.tasks.items()})
        fits = counts["chief"] == 1 and counts["worker"] >= 1 and counts["ps"] >= 1
        if not fits or set(self.tasks) - {"chief", "worker", "ps"}:
            raise ValueError(
                f"strategy 'parameter_server' can't use the cluster in TF_CONFIG, {self}: it needs "
                "1 chief, 1 or more workers and 1 or more ps. Name these, or choose another "
                "strategy"
            )


def _addresses(kind: str, value: Any) -> tuple[str, ...]:
    """Checks the addresses of the tasks of a kind.

    Raises:
      ValueError: they are no list of addresses.
    """
    try:
        if not isinstance(value, list):
            raise ValueError(f"{str(value)[:80]!r} is no list")
        for address in value:
            host_and_port(str(address))
    except ValueError as error:
        raise ValueError(f"TF_CONFIG, {kind!r}: {error}. Its form is {_FORM}.") from error
    return tuple(map(str, value))
