"""Options of the input pipeline are checked when they are made."""

import re
from typing import Any

import numpy as np
import pytest

from pipeline.config import Balance, InputConfig, RandomCrop, Reading


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"height": 0}, "height must be at least 1, got 0"),
        ({"max_boxes": 0}, "max_boxes must be at least 1, got 0"),
        ({"parallel_decodes": 0}, "parallel_decodes must be at least 1, got 0"),
        ({"views": 0}, "views must be at least 1, got 0"),
        ({"views": 2}, "views 2 would be alike without augmentations: choose some, or set views"),
        ({"channels": 2}, "channels must be 1 or 3, got 2"),
        ({"fit": "crop"}, "fit must be 'pad' or 'stretch' or 'top', got 'crop'"),
        ({"dtype": "int8"}, "dtype must be 'float32' or 'uint8', got 'int8'"),
        (
            {"placement": "device"},
            "needs the features 'image' and 'seed': name them in features",
        ),
        (
            {"reading": Reading(block_length=8), "balance": Balance(alpha=0.5)},
            "block_length 8 deals neighbors together, whatever their layout: set it to 1 for "
            "an alpha of 0.5",
        ),
        (
            {"reading": Reading(block_length=8), "balance": Balance(alpha=((1.0, 0), (0.5, 9)))},
            "block_length 8 deals .*: set it to 1 for an alpha of 1.0@0,0.5@9",
        ),
        ({"buckets": 0}, "buckets must be at least 1, got 0"),
        ({"buckets": True}, "buckets must be an integer, such as 4, got True"),
        ({"buckets": ()}, r"buckets must be a number of sizes, or sizes such as .*, got \(\)"),
        ({"buckets": [[64, 32]]}, r"buckets must be a number .*, got \[\[64, 32\]\]"),
        ({"buckets": (64, 32)}, r"buckets must be a number of sizes, .*, got \(64, 32\)"),
        ({"buckets": ((64, 32, 1),)}, r"a height and a width in pixels, .*, got \(64, 32, 1\)"),
        ({"buckets": ((64, 0),)}, r"a height and a width in pixels, .*, got \(64, 0\)"),
        (
            {"buckets": ((64, 32), (32, 32), (128, 64))},
            r"buckets must differ in their ratio .*, got \(64, 32\) and \(128, 64\)",
        ),
        (
            {"reading": Reading(block_length=8), "buckets": 4},
            "block_length 8 deals neighbors together, whatever their size: set it to 1, or leave "
            "buckets out",
        ),
        (
            {"balance": Balance(alpha=((1.0, 0), (0.5, 9))), "buckets": 4},
            "buckets have one alpha for all steps, got 1.0@0,0.5@9: choose one, or leave buckets",
        ),
    ],
)
def test_input_config(options: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        InputConfig(**options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"alpha": 1.5}, "alpha must be 0 .* to 1 .*, got 1.5"),
        ({"alpha": float("nan")}, "alpha must be 0 .* to 1 .*, got nan"),
        ({"repeat_cap": 0.5}, "repeat_cap must be at least 1, got 0.5"),
        ({"alpha": ((1.0, 0), (1.5, 9))}, "alpha must be 0 .* to 1 .*, got 1.5"),
        ({"alpha": (("x", 0),)}, "alpha must be a number, such as 0.3, got 'x'"),
        (
            {"alpha": ((1.0, 5), (0.5, 9))},
            r"alpha must have a first phase at step 0, got 1.0@5,0.5@9: put one first, such as 1",
        ),
        (
            {"alpha": ((1.0, 0), (0.5, 9), (0.0, 9))},
            r"alpha must have phases whose steps ascend, got 1.0@0,0.5@9,0.0@9: put them in order",
        ),
        (
            {"alpha": ((1.0, 0), (0.5, 1 << 63))},
            r"a step of alpha must be at most .* \(2\*\*40\), got",
        ),
        ({"alpha": ((1.0, 0), (0.5, -9))}, "a step of alpha must be at least 0, got -9"),
        ({"alpha": ((1.0, 0), (0.5, 9), (0.0, 4))}, "phases whose steps ascend, got 1.0@0,0.5@9,"),
        (
            {"alpha": ()},
            r"alpha must be a number or pairs of a number and a step, such as .*, got \(",
        ),
        ({"alpha": (1.0, 0)}, r"alpha must be a number or pairs .*, got \(1.0, 0\)"),
        ({"alpha": ((1.0, 0.5),)}, r"alpha must be a number or pairs .*, got \(\(1.0, 0.5\),\)"),
    ],
)
def test_balance(options: dict[str, float], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        Balance(**options)


def test_phases_of_a_balance():
    balance = Balance(alpha=((1, 0), (0.5, 600)))
    assert balance.phases == balance.alpha
    assert balance.alpha_text == "1.0@0,0.5@600"
    # A dataset whose batches are thirds of the run's counts three for each step.
    assert balance.in_parts(3) == Balance(alpha=((1, 0), (0.5, 1800)))
    assert Balance(alpha=0.3).phases == ((0.3, 0),)
    assert Balance(alpha=0.3).in_parts(3) == Balance(alpha=0.3)
    assert [Balance(alpha=each).is_natural for each in (1, 0.3, ((1.0, 0),), balance.alpha)] == [
        True,
        False,
        True,
        False,
    ]


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


@pytest.mark.parametrize("name", ["block_length", "parallel_reads", "buffer_bytes"])
def test_reading(name: str):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        Reading(**{name: 0})


@pytest.mark.parametrize("name", ["verify", "portable"])
def test_flags_of_reading(name: str):
    with pytest.raises(ValueError, match=f"{name} must be of type bool, such as True, got 'first'"):
        Reading(**{name: "first"})


class _Op:
    """An augmentation that was not put into a tuple."""

    def __repr__(self) -> str:
        return "Rotate()"

    def __call__(self, examples: dict[str, Any], seeds: Any) -> dict[str, Any]:
        return examples


_FEATURES = "features must be None or a tuple of names, such as ('image', 'label'), got "
_AUGMENTATIONS = "augmentations must be a tuple of functions, such as (Rotate(),), got "


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"height": 32.0}, "height must be an integer, such as 256, got 32.0"),
        ({"width": "32"}, "width must be an integer, such as 256, got '32'"),
        ({"width": True}, "width must be an integer, such as 256, got True"),
        ({"height": None}, "height must be an integer, such as 256, got None"),
        ({"channels": 3.0}, "channels must be an integer, such as 3, got 3.0"),
        ({"max_boxes": 8.5}, "max_boxes must be an integer, such as 256, got 8.5"),
        ({"views": 2.0}, "views must be an integer, such as 2, got 2.0"),
        ({"parallel_decodes": 4.0}, "parallel_decodes must be an integer, such as 64, got 4.0"),
        (
            {"balance": 0.3},
            "balance must be of type Balance, such as Balance(alpha=0.3), got 0.3",
        ),
        (
            {"reading": 4},
            "reading must be of type Reading, such as Reading(block_length=32), got 4",
        ),
        ({"crop": True}, "crop must be of type RandomCrop, such as RandomCrop(), got True"),
        ({"crop": 0.7}, "crop must be of type RandomCrop, such as RandomCrop(), got 0.7"),
        ({"label": 3}, "label must be of type str, such as 'layout', got 3"),
        ({"sample_weights": "no"}, "sample_weights must be of type bool, such as True, got 'no'"),
        ({"features": "image"}, f"{_FEATURES}'image'"),
        ({"features": ()}, f"{_FEATURES}()"),
        ({"features": ["image"]}, f"{_FEATURES}['image']"),
        ({"features": ("image", 3)}, f"{_FEATURES}('image', 3)"),
        ({"augmentations": _Op()}, f"{_AUGMENTATIONS}Rotate()"),
        ({"augmentations": None}, f"{_AUGMENTATIONS}None"),
        ({"augmentations": ("rotate",)}, f"{_AUGMENTATIONS}('rotate',)"),
        (
            {"augmentations": (_Op(), _Op)},
            "augmentations has the class _Op, and must have objects: write _Op()",
        ),
    ],
)
def test_types_of_input_config(options: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        InputConfig(**options)


@pytest.mark.parametrize(
    ("make", "options", "sentence"),
    [
        (Balance, {"alpha": "0.3"}, "alpha must be a number, such as 0.3, got '0.3'"),
        (Balance, {"alpha": None}, "alpha must be a number, such as 0.3, got None"),
        (Balance, {"repeat_cap": True}, "repeat_cap must be a number, such as 8, got True"),
        (Balance, {"by": 1}, "by must be of type str, such as 'layout', got 1"),
        (Reading, {"block_length": 8.0}, "block_length must be an integer, such as 32, got 8.0"),
        (Reading, {"block_length": None}, "block_length must be an integer, such as 32, got None"),
        (
            Reading,
            {"buffer_bytes": 1e6},
            "buffer_bytes must be an integer, such as 32, got 1000000.0",
        ),
        (Reading, {"portable": 1}, "portable must be of type bool, such as True, got 1"),
        (RandomCrop, {"min_side": "0.7"}, "min_side must be a number, such as 0.7, got '0.7'"),
        (RandomCrop, {"min_visible": None}, "min_visible must be a number, such as 0.3, got None"),
    ],
)
def test_types_of_options(make: Any, options: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        make(**options)


def test_numbers_of_numpy_will_do():
    config = InputConfig(
        height=np.int64(32),
        balance=Balance(alpha=np.float32(0.5), repeat_cap=np.int32(3)),
        crop=RandomCrop(min_side=1),
    )
    assert (config.height, config.balance.alpha) == (32, 0.5)


@pytest.mark.parametrize(
    ("features", "names", "expected"),
    [
        (None, ("weight",), ("weight",)),
        (("image", "label"), ("weight", "label"), ("image", "label", "weight")),
        (("image", "seed"), (), ("image", "seed")),
    ],
)
def test_with_features(
    features: tuple[str, ...] | None, names: tuple[str, ...], expected: tuple[str, ...]
):
    config = InputConfig(height=32, features=features)
    assert config.with_features(*names) == InputConfig(height=32, features=expected)
