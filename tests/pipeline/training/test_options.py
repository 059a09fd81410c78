"""The learning rate's schedules."""

import inspect
import re
from typing import Any, Literal

import pytest

pytest.importorskip("tensorflow")

from pipeline.train_arguments import make_parser
from pipeline.training.options import TrainOptions


def rates(schedule: Literal["cosine", "constant"], *, warmup_steps: int) -> list[float]:
    """The learning rate at each step of 8, and behind the last."""
    options = TrainOptions(steps=8, learning_rate=1.0, schedule=schedule, warmup_steps=warmup_steps)
    optimizer = options.make_optimizer()
    found = []
    for step in range(9):
        optimizer.iterations.assign(step)
        found.append(float(optimizer.learning_rate.numpy()))
    return found


def test_constant():
    assert rates("constant", warmup_steps=0) == [1.0] * 9


def test_constant_after_a_warm_up():
    assert rates("constant", warmup_steps=4) == [0.0, 0.25, 0.5, 0.75, *[1.0] * 5]


def test_cosine():
    found = rates("cosine", warmup_steps=0)
    assert found[0] == 1
    assert found == sorted(found, reverse=True)
    assert found[4] == pytest.approx(0.5)
    assert found[8] == pytest.approx(0, abs=1e-6)


def test_cosine_after_a_warm_up():
    found = rates("cosine", warmup_steps=4)
    assert found[:5] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert found[6] == pytest.approx(0.5)
    assert found[8] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"learning_rate_batch": -64}, "learning_rate_batch must be at least 1, got -64"),
        ({"seed": -1}, "seed must be 0 to 2**32 - 1, got -1"),
        ({"learning_rate": float("inf")}, "learning_rate must be a finite number, got inf"),
        ({"weight_decay": float("nan")}, "weight_decay must be a finite number, got nan"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"schedule": "linear"}, "schedule must be 'cosine' or 'constant', got 'linear'"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0, got -0.1"),
        ({"clip_norm": 0.0}, "clip_norm must be above 0, got 0.0"),
        ({"steps": 5, "warmup_steps": 5}, "warmup_steps must be 0 to 4, less than steps, got 5"),
    ],
)
def test_errors(options: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        TrainOptions(**options)


def test_the_rate_follows_the_batch_size():
    options = TrainOptions(
        global_batch_size=128, learning_rate=0.5, learning_rate_batch=64, schedule="constant"
    )
    assert float(options.make_optimizer().learning_rate.numpy()) == 1.0


def test_help_is_found_in_docstrings_as_python_3_13_keeps_them(monkeypatch: pytest.MonkeyPatch):
    shown = make_parser().format_help()
    monkeypatch.setattr(TrainOptions, "__doc__", inspect.cleandoc(TrainOptions.__doc__ or ""))
    assert make_parser().format_help() == shown
