"""Training killed at any step goes on, on another number of workers, with the very same stream."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.end_to_end.test_strategies import COUNTS, printed, training_stream
from tests.support.dataset_factory import write_dataset
from tests.support.processes import Process, processes, wait_until
from tests.support.strategy_worker import TRAINING


def recorded_steps(started: Sequence[Process]) -> int:
    """Steps that every worker has recorded."""
    return min(len(each.lines()) for each in started)


def test_killed_training_resumes_on_other_numbers_of_workers(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts", counts=COUNTS, shards=3)
    rng = random.Random(1)
    seen, step = {}, 0
    for workers in (1, 2, 3):
        command = (
            "tests.support.strategy_worker",
            str(directory),
            "multi-worker",
            f"--start-step={step}",
        )
        with processes(tmp_path / f"{workers}", {"worker": [command] * workers}) as started:
            enough = rng.randint(1, 20)
            wait_until(lambda: recorded_steps(started) >= enough, started)  # noqa: B023
            assert not any(each.has_ended() for each in started)
            for each in rng.sample(started, workers):
                each.kill()
            step += recorded_steps(started)
            lines = [line for each in started for line in each.lines()]
        # Steps that not every worker recorded are lost, and made again.
        made = printed(lines, "multi-worker", "training")
        seen |= {place: each for place, each in made.items() if place[0] < step}
    assert len(seen) == step * TRAINING["global_batch_size"]
    assert seen == training_stream(directory, steps=step)
