"""Parsed JSON as dataclasses, whose fields have the types that they declare."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_JSON_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    bool: "true or false",
}
_OBJECTS: tuple[object, ...] = (dict, Mapping)


def parse_as(expected: type[T], value: object, place: str) -> T:
    """Returns a parsed JSON value as `expected`.

    Args:
      expected: a dataclass of scalars, `Literal`, `tuple[X, ...]`, `Mapping[str, X]`, `Any` and
        further dataclasses.
      value: the value, as `json.loads` gives it.
      place: its name, for the error.

    Raises:
      ValueError: a value has another type, or a field is missing or unknown; the sentence names it.
    """
    parsed: T = _parse(expected, value, place)
    return parsed


def _parse(expected: Any, value: Any, place: str) -> Any:
    if type(value) is expected or expected is Any:
        return value
    if is_dataclass(expected):
        return _dataclass(expected, value, place)
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{place} is {value!r}, must be one of {', '.join(arguments)}")
        return value
    if origin is tuple:
        items = _checked(list, value, place)
        if all(type(item) is arguments[0] for item in items):
            return tuple(items)  # one by one, a million names would take a second
        return tuple(_parse(arguments[0], item, f"{place}[{at}]") for at, item in enumerate(items))
    if origin in _OBJECTS:
        items = _checked(dict, value, place)
        return {name: _parse(arguments[1], item, f"{place}.{name}") for name, item in items.items()}
    return _checked(expected, value, place)


def _dataclass(expected: Any, value: Any, place: str) -> Any:
    hints, required = _fields(expected)
    items = _checked(dict, value, place)
    if missing := required - items.keys():
        raise ValueError(f"{place} has no {min(missing)!r}")
    if unknown := items.keys() - hints.keys():
        raise ValueError(f"{place} has an unknown {min(unknown)!r}")
    parsed = {
        name: item if type(item) is hints[name] else _parse(hints[name], item, f"{place}.{name}")
        for name, item in items.items()
    }
    return expected(**parsed)


@cache
def _fields(expected: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Types of a dataclass's fields, and the names of those without a default."""
    required = [
        field.name
        for field in fields(expected)
        if field.default is MISSING and field.default_factory is MISSING
    ]
    return get_type_hints(expected), frozenset(required)


def _checked(expected: Any, value: Any, place: str) -> Any:
    if type(value) is not expected:  # to isinstance, True would be an integer
        name = _JSON_NAMES.get(expected, expected.__name__)
        raise ValueError(f"{place} is {value!r:.80}, must be {name}")
    return value
