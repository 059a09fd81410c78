"""Plans that follow each other in a run: phases of steps, each with an alpha of its own."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from pipeline.option_checks import check_step
from pipeline.sampling.plan import BatchPlan

FOREVER = (1 << 63) - 1  # the highest int64


@dataclass(frozen=True, kw_only=True, eq=False)
class Phase:
    """The steps of a phase, and their plan.

    Attributes:
      plan: the plan.
      steps: global steps over all epochs, such as range(0, 6000); the last phase ends at `FOREVER`.
    """

    plan: BatchPlan
    steps: range


@dataclass(frozen=True, kw_only=True, eq=False)
class PhasedPlan:
    """The plan of a training run in which alpha may change.

    All plans deal the same units to batches of the same size, so an epoch has equally many steps in
    each, and steps and epochs are counted through. The batch of a step is the one that its phase's
    plan has for this step. With 4 steps per epoch, and phases from steps 0 and 6 on:

        step     0 1 2 3 | 4 5 6 7 | 8 9 …
        epoch    0       | 1       | 2
        plan     0 0 0 0 | 0 0 1 1 | 1 1

    So the step is still all the state there is. Within an epoch in which alpha changes, a unit may
    come in both phases, or in neither.

    Attributes:
      plans: the plans, which differ in alpha alone.
      first_steps: the global step at which each phase begins, ascending from 0.
    """

    plans: tuple[BatchPlan, ...]
    first_steps: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        first = self.first_steps
        if len(first) != len(self.plans) or first[:1] != (0,) or sorted({*first}) != [*first]:
            raise ValueError(
                f"{len(self.plans)} plans need as many steps that ascend from 0, got {first}"
            )

    @property
    def batch_units(self) -> int:
        """Units of a global batch."""
        return self.plans[0].batch_units

    @property
    def seed(self) -> int:
        """The seed of all plans, see `plan_seed`."""
        return self.plans[0].seed

    @property
    def steps_per_epoch(self) -> int:
        """Global batches in an epoch of any phase."""
        return self.plans[0].steps_per_epoch

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The phases in their order."""
        bounds = pairwise((*self.first_steps, FOREVER))
        return tuple(
            Phase(plan=plan, steps=range(*bound))
            for plan, bound in zip(self.plans, bounds, strict=True)
        )

    def phase(self, step: int) -> Phase:
        """Finds the phase of a global step.

        Raises:
          ValueError: the step is above 2**40.
        """
        check_step("step", step)
        return self.phases[bisect_right(self.first_steps, step) - 1]

    def from_step(self, step: int) -> tuple[Phase, ...]:
        """Returns what is left of the phases from a global step on."""
        return tuple(
            replace(phase, steps=range(max(step, phase.steps.start), phase.steps.stop))
            for phase in self.phases
            if step < phase.steps.stop
        )
