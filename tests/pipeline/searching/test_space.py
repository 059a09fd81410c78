"""Ranges of options: what they mean, and what is refused."""

from typing import Literal

import pytest

pytest.importorskip("optuna")

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from pipeline.searching.space import contains, parse_space, samples_of, suggest, to_flags

TYPES = {
    "learning_rate": float,
    "clip_norm": float | None,
    "warmup_steps": int,
    "mixed_precision": bool,
    "model.width": int,
    "model.depth": Literal["shallow", "deep"],
    "model.augment": bool,
}


@pytest.mark.parametrize(
    ("text", "name", "distribution"),
    [
        ("learning_rate=0.1..1", "learning_rate", FloatDistribution(0.1, 1.0)),
        (
            "learning-rate=log:1e-4..1e-1",
            "learning_rate",
            FloatDistribution(1e-4, 1e-1, log=True),
        ),
        ("--clip-norm=1..5", "clip_norm", FloatDistribution(1.0, 5.0)),
        ("clip_norm=none,1,5", "clip_norm", CategoricalDistribution([None, 1.0, 5.0])),
        ("warmup_steps=0..100", "warmup_steps", IntDistribution(0, 100)),
        ("warmup_steps=log:1..100", "warmup_steps", IntDistribution(1, 100, log=True)),
        ("model.width=8, 16,32", "model.width", CategoricalDistribution([8, 16, 32])),
        ("model.depth=shallow,deep", "model.depth", CategoricalDistribution(["shallow", "deep"])),
        ("mixed_precision=true,false", "mixed_precision", CategoricalDistribution([True, False])),
    ],
)
def test_a_range_becomes_a_distribution_by_the_type_of_its_option(text, name, distribution):
    assert parse_space([text], TYPES) == {name: distribution}


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (
            ["learning_rate"],
            "--space 'learning_rate' is not NAME=RANGE, such as",
        ),
        (["=1..2"], "--space '=1..2' is not NAME=RANGE"),
        (["lr=1..2"], "'lr' is not an option that a search can vary: choose among learning_rate, "),
        (["learning_rate=1..2"] * 2, "--space names learning_rate twice: leave one out"),
        (["learning_rate=2..1"], "the range is empty: its first number must be below the second"),
        (["learning_rate=1..1"], "the range is empty"),
        (["learning_rate=log:0..1"], "log: takes numbers above 0, got 0.0"),
        (["learning_rate=0..inf"], "both ends of a range must be finite"),
        (["warmup_steps=1..2.5"], "must be a whole number, got '2.5'"),
        (["model.depth=1..2"], "the option takes no numbers: list its values with commas"),
        (["model.depth=flat,deep"], "must be one of shallow, deep, got 'flat'"),
        (["model.width=8"], "a single value is not a range"),
        (["model.width=8,16,8"], "a value stands there twice: leave one out"),
        (["model.width=log:8,16"], "must be a whole number, got 'log:8'"),
    ],
)
def test_what_is_no_range_is_refused_with_a_sentence(texts: list[str], sentence: str):
    with pytest.raises(ValueError, match=r"^--space ") as error:
        parse_space(texts, TYPES)
    assert sentence in str(error.value)


def test_values_are_written_as_flags():
    assert to_flags(
        {
            "learning_rate": 1e-05,
            "mixed_precision": True,
            "sample_weights": False,
            "clip_norm": None,
            "model.label_smoothing": 0.1,
            "model.augment": False,
        }
    ) == [
        "--learning-rate=1e-05",
        "--mixed-precision",
        "--clip-norm=none",
        "--model.label-smoothing=0.1",
        "--model.augment=false",
    ]


def test_a_trial_gets_values_of_each_kind_and_keeps_them():
    texts = [
        "learning_rate=log:1e-4..1e-1",
        "warmup_steps=log:1..100",
        "model.width=8,16",
        "clip_norm=none,1",
    ]
    space = parse_space(texts, TYPES)
    trial = optuna.create_study().ask()
    values = suggest(trial, space)
    assert values.keys() == space.keys()
    assert all(contains(space[name], value) for name, value in values.items())
    assert suggest(trial, space) == values


@pytest.mark.parametrize(
    ("distribution", "samples", "outside"),
    [
        (FloatDistribution(0.5, 2.0), [0.5, 2.0], [0.4, 2.1, "1", None, True]),
        (IntDistribution(8, 32), [8, 9, 32], [7, 33]),
        (CategoricalDistribution([1, None]), [1, None], [2, True, "1"]),
    ],
)
def test_samples_lie_in_their_distribution_and_others_do_not(distribution, samples, outside):
    assert samples_of(distribution) == samples
    assert all(contains(distribution, value) for value in samples)
    assert not any(contains(distribution, value) for value in outside)
