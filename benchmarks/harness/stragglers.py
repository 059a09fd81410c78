"""Workers that are late now and then, and a simulation of steps that wait for most of them."""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Seconds that a worker takes for a gradient.

    Attributes:
      step_s: seconds that it usually takes.
      probability: of a gradient that takes longer.
      factor: how many times longer that one takes.
    """

    step_s: float = 0.1
    probability: float = 0.02
    factor: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.step_s < math.inf:
            raise ValueError(f"step_s must be above 0, got {self.step_s}")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must be 0 to 1, got {self.probability}")
        if not 1 <= self.factor < math.inf:
            raise ValueError(f"factor must be at least 1, got {self.factor}")

    @property
    def mean_s(self) -> float:
        """Mean seconds of a gradient."""
        return self.step_s * (1 + self.probability * (self.factor - 1))

    def draw(self, rng: np.random.Generator) -> float:
        """Draws the seconds of a gradient."""
        return self.step_s * (self.factor if rng.random() < self.probability else 1.0)


def simulate_step_s(needed: int, backups: int, draw: Callable[[], float], *, steps: int) -> float:
    """Simulates steps as `pipeline.training.backup_workers` takes them, without any overhead.

    Args:
      needed: gradients of a step.
      backups: workers beside as many.
      draw: draws the seconds of a gradient.
      steps: number of steps.

    Returns:
      The mean seconds of a step.
    """
    now, waiting = 0.0, 0
    running: list[tuple[float, int]] = []  # when a gradient ends, and the step it began in
    for step in range(steps):
        waiting = max(needed, needed + backups - len(running))
        come = 0
        while come < needed:
            while waiting and len(running) < needed + backups:
                heapq.heappush(running, (now + draw(), step))
                waiting -= 1
            now, began_in = heapq.heappop(running)
            if began_in == step:
                come += 1
            else:
                waiting += 1
    return now / steps
