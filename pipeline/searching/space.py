"""The space of a search: ranges of options, as `--space NAME=RANGE` writes them.

A range is `1e-4..1e-1`, `log:1e-4..1e-1` or values with commas, `8,16,32`. It becomes one of
Optuna's distributions, by the type of the option.
"""

import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from schemas.command_line import parse_value

Space = Mapping[str, BaseDistribution]
Value = str | int | float | bool | None

_EXAMPLE = "learning_rate=log:1e-4..1e-1 or model.width=8,16,32"
_RANGE = re.compile(r"(log:)?(.+?)\.\.(.+)")


def parse_space(texts: Iterable[str], option_types: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the distributions of a space, by the names of their options.

    Args:
      texts: such as "learning_rate=log:1e-4..1e-1"; dashes in names are underscores.
      option_types: types of the options that a search can vary.

    Raises:
      ValueError: a text is not a range, or names no option or one that another has named.
    """
    space: dict[str, Any] = {}
    for text in texts:
        name, separator, values = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not separator or not name or not values:
            raise ValueError(f"--space {text!r} is not NAME=RANGE, such as {_EXAMPLE}")
        if name not in option_types:
            raise ValueError(
                f"--space {text}: {name!r} is not an option that a search can vary: choose among "
                f"{', '.join(option_types)}"
            )
        if name in space:
            raise ValueError(f"--space names {name} twice: leave one out")
        try:
            space[name] = _distribution(values, option_types[name])
        except ValueError as error:
            raise ValueError(f"--space {text}: {error}") from error
    return space


def _distribution(text: str, type_: Any) -> BaseDistribution:
    found = _RANGE.fullmatch(text)
    if not found:
        return _choices(text, type_)
    log, ends = bool(found[1]), found.groups()[1:]
    number = _number_type(type_)
    if number is None:
        raise ValueError("the option takes no numbers: list its values with commas")
    low, high = (parse_value(end.strip(), number) for end in ends)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("both ends of a range must be finite")
    if low >= high:
        raise ValueError("the range is empty: its first number must be below the second one")
    if log and low <= 0:
        raise ValueError(f"log: takes numbers above 0, got {low}")
    made = IntDistribution if number is int else FloatDistribution
    return made(low, high, log=log)


def _choices(text: str, type_: Any) -> CategoricalDistribution:
    choices = [parse_value(each.strip(), type_) for each in text.split(",")]
    if len(choices) < 2:
        raise ValueError(
            "a single value is not a range: give it as an option of pipeline.train, or write "
            "LOW..HIGH or values with commas"
        )
    if len(set(choices)) < len(choices):
        raise ValueError("a value stands there twice: leave one out")
    return CategoricalDistribution(choices)


def _number_type(type_: Any) -> type | None:
    """Returns int or float where an option's type is one of them, perhaps with None; else None."""
    is_union = typing.get_origin(type_) in (typing.Union, types.UnionType)
    parts = set(typing.get_args(type_) if is_union else (type_,)) - {types.NoneType}
    [only] = parts if len(parts) == 1 else [None]
    return only if only in (int, float) else None


def suggest(trial: Trial, space: Space) -> dict[str, Value]:
    """Asks a trial for a value of each option; a trial that has its values keeps them."""
    values: dict[str, Value] = {}
    for name, distribution in space.items():
        if isinstance(distribution, CategoricalDistribution):
            values[name] = trial.suggest_categorical(name, distribution.choices)
        elif isinstance(distribution, IntDistribution):
            values[name] = trial.suggest_int(
                name, distribution.low, distribution.high, log=distribution.log
            )
        elif isinstance(distribution, FloatDistribution):
            values[name] = trial.suggest_float(
                name, distribution.low, distribution.high, log=distribution.log
            )
    return values


def flag_of(name: str) -> str:
    """Returns the flag of an option, such as "--learning-rate"."""
    return f"--{name.replace('_', '-')}"


def to_flags(values: Mapping[str, Value]) -> list[str]:
    """Writes values of options as arguments of `pipeline.train`."""
    flags = []
    for name, value in values.items():
        flag = flag_of(name)
        if isinstance(value, bool) and not name.startswith("model."):
            flags += [flag] if value else []
            continue
        is_word = value is None or isinstance(value, bool)
        flags.append(f"{flag}={str(value).lower() if is_word else value}")
    return flags


def samples_of(distribution: BaseDistribution) -> list[Value]:
    """Lists values by which it shows whether an option takes those of a distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    if isinstance(distribution, IntDistribution):
        # The second one, too: of 8..32, 8 is a multiple of 8, and 9 is not.
        return [distribution.low, distribution.low + 1, distribution.high]
    assert isinstance(distribution, FloatDistribution)
    return [distribution.low, distribution.high]


def contains(distribution: BaseDistribution, value: Value) -> bool:
    """Tells whether a value lies in a distribution."""
    if isinstance(distribution, CategoricalDistribution):
        pairs = [(choice, type(choice)) for choice in distribution.choices]
        return (value, type(value)) in pairs  # True is not 1
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return distribution.low <= value <= distribution.high
