"""Phases of a plan."""

import numpy as np
import pytest

from pipeline.sampling.phases import FOREVER, PhasedPlan
from pipeline.sampling.plan import BatchPlan

PLANS = tuple(
    BatchPlan(counts=np.array([30, 2]), batch_units=4, alpha=alpha) for alpha in (1.0, 0.5, 0.0)
)
PHASED = PhasedPlan(plans=PLANS, first_steps=(0, 7, 20))


@pytest.mark.parametrize(
    ("step", "number"), [(0, 0), (6, 0), (7, 1), (19, 1), (20, 2), (10**12, 2)]
)
def test_each_step_is_in_one_phase(step: int, number: int):
    assert PHASED.phase(step).plan is PHASED.phase(np.int64(step)).plan is PLANS[number]
    assert step in PHASED.phase(step).steps


def test_phases_from_a_step_on():
    found = [(phase.plan.alpha, phase.steps) for phase in PHASED.from_step(7)]
    assert found == [(0.5, range(7, 20)), (0.0, range(20, FOREVER))]
    found = [(phase.plan.alpha, phase.steps) for phase in PHASED.from_step(6)]
    assert found == [(1.0, range(6, 7)), (0.5, range(7, 20)), (0.0, range(20, FOREVER))]


@pytest.mark.parametrize("first_steps", [(), (0,), (1, 2, 3), (0, 5, 5), (0, 5, 4)])
def test_errors(first_steps: tuple[int, ...]):
    with pytest.raises(ValueError, match="3 plans need as many steps that ascend from 0, got"):
        PhasedPlan(plans=PLANS, first_steps=first_steps)
