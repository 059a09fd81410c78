"""Counts of gradients, and steps that are taken by them in a simulated cluster."""

import heapq
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("psutil")

from benchmarks.harness.stragglers import Delays, simulate_step_s
from pipeline.training.gradient_count import GradientCount

WORKERS = 6
STEPS = 3000


def test_a_late_gradient_frees_its_worker():
    count = GradientCount(needed=3, workers=4)
    assert count.begin_step() == 4
    assert count.look(come=3, computed=3) == 0
    count.end_step(used=3)
    assert count.begin_step() == 3
    assert count.look(come=0, computed=4) == 1
    assert count.look(come=0, computed=4) == 0
    assert count.late == 1


def test_where_most_are_busy_others_compute_two():
    count = GradientCount(needed=3, workers=4)
    count.begin_step()
    count.look(come=3, computed=3)
    count.end_step(used=3)
    count.begin_step()
    count.look(come=3, computed=6)
    count.end_step(used=3)
    assert count.begin_step() == 3


def test_a_late_gradient_that_nobody_saw_is_not_counted_as_a_free_worker():
    """All are done before the last of them was seen: four are asked, not five."""
    count = GradientCount(needed=3, workers=4)
    count.begin_step()
    count.look(come=3, computed=3)
    count.end_step(used=3)
    count.nobody_is_busy(computed=4)
    assert count.late == 1
    assert count.begin_step() == 4
    assert count.look(come=0, computed=4) == 0


def test_what_a_lost_worker_did_twice_is_forgotten():
    count = GradientCount(needed=3, workers=3)
    count.begin_step()
    count.look(come=3, computed=4)
    count.end_step(used=3)
    count.nobody_is_busy(computed=4)
    assert count.begin_step() == 3


def mean_step_s(needed: int, draw: Callable[[], float], rng: np.random.Generator) -> float:
    """Mean seconds of a step; the chief sees at once what has come, and later what was computed."""
    count = GradientCount(needed=needed, workers=WORKERS)
    now, waiting, computed = 0.0, 0, 0
    running: list[tuple[float, int]] = []  # when a gradient ends, and the step it began in
    for step in range(STEPS):
        if not running and not waiting:
            count.nobody_is_busy(computed=computed)
        waiting += count.begin_step()
        come = 0
        while come < needed:
            while waiting and len(running) < WORKERS:
                heapq.heappush(running, (now + draw(), step))
                waiting -= 1
            now, began_in = heapq.heappop(running)
            computed += 1
            come += began_in == step
            unseen = int(rng.integers(2))
            waiting += count.look(come=come, computed=computed - unseen)
        used = come
        while running and running[0][0] < now + 0.01:  # until the step has ended
            _, began_in = heapq.heappop(running)
            computed += 1
            used += began_in == step and bool(rng.integers(2))
        count.end_step(used=used)
    return now / STEPS


@pytest.mark.parametrize("backups", [0, 1, 2])
@pytest.mark.parametrize("jitter", [0.0, 0.05])
def test_steps_are_as_short_as_in_the_simulation(backups: int, jitter: float):
    rng, delays = np.random.default_rng(1), Delays(step_s=1.0)

    def draw() -> float:
        return delays.draw(rng) + jitter * rng.random()

    needed = WORKERS - backups
    expected = simulate_step_s(needed, backups, draw, steps=STEPS)
    assert mean_step_s(needed, draw, rng) == pytest.approx(expected, rel=0.1)
