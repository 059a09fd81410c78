"""Options of the input pipeline are checked when they are made."""

from typing import Any

import pytest

from pipeline.config import Balance, InputConfig, RandomCrop, Reading


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"height": 0}, "height must be at least 1, got 0"),
        ({"max_boxes": 0}, "max_boxes must be at least 1, got 0"),
        ({"parallel_decodes": 0}, "parallel_decodes must be at least 1, got 0"),
        ({"channels": 2}, "channels must be 1 or 3, got 2"),
        ({"fit": "crop"}, "fit must be 'pad' or 'stretch', got 'crop'"),
        ({"dtype": "int8"}, "dtype must be 'float32' or 'uint8', got 'int8'"),
        (
            {"placement": "device"},
            "needs the features 'image' and 'seed': name them in features",
        ),
        (
            {"reading": Reading(run_length=8), "balance": Balance(temperature=0.5)},
            "run_length 8 deals neighbours together, whatever their layout: set it to 1 for a "
            "temperature of 0.5",
        ),
    ],
)
def test_input_config(options: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        InputConfig(**options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": 1.5}, "temperature must be 0 .* to 1 .*, got 1.5"),
        ({"temperature": float("nan")}, "temperature must be 0 .* to 1 .*, got nan"),
        ({"repeat_cap": 0.5}, "repeat_cap must be at least 1, got 0.5"),
    ],
)
def test_balance(options: dict[str, float], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        Balance(**options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_side": 0.0}, "min_side must be above 0 and at most 1, got 0.0"),
        ({"min_side": 1.5}, "min_side must be above 0 and at most 1, got 1.5"),
        ({"min_side": float("nan")}, "min_side must be above 0 and at most 1, got nan"),
        ({"min_visible": -0.1}, "min_visible must be 0 to 1, got -0.1"),
    ],
)
def test_random_crop(options: dict[str, float], sentence: str):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        RandomCrop(**options)


@pytest.mark.parametrize("name", ["run_length", "parallel_reads", "buffer_bytes"])
def test_reading(name: str):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        Reading(**{name: 0})
