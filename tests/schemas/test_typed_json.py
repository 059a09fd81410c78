"""JSON values become dataclasses, or a sentence that names the value which can't."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from schemas.typed_json import parse_as


@dataclass(frozen=True, kw_only=True)
class Part:
    kind: Literal["big", "small"]
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Whole:
    name: str
    flag: bool
    parts: tuple[Part, ...]
    by_name: Mapping[str, tuple[str, ...]]
    anything: Any = None


VALUES: dict[str, Any] = {
    "name": "n",
    "flag": True,
    "parts": [{"kind": "big", "sizes": [1, 2]}, {"kind": "small"}],
    "by_name": {"a": ["x", "y"], "b": []},
}


def test_parses_nested_dataclasses() -> None:
    assert parse_as(Whole, {**VALUES, "anything": [1, {}]}, "file") == Whole(
        name="n",
        flag=True,
        parts=(Part(kind="big", sizes=(1, 2)), Part(kind="small")),
        by_name={"a": ("x", "y"), "b": ()},
        anything=[1, {}],
    )


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"name": 3}, "file.name is 3, must be a string"),
        ({"name": None}, "file.name is None, must be a string"),
        ({"name": ["x" * 200]}, f"file.name is ['{'x' * 78}, must be a string"),
        ({"flag": 1}, "file.flag is 1, must be true or false"),
        ({"parts": {}}, "file.parts is {}, must be a list"),
        ({"parts": [3]}, "file.parts[0] is 3, must be an object"),
        ({"parts": [{}]}, "file.parts[0] has no 'kind'"),
        ({"parts": [{"kind": "odd"}]}, "file.parts[0].kind is 'odd', must be one of big, small"),
        ({"parts": [{"kind": {}}]}, "file.parts[0].kind is {}, must be one of big, small"),
        (
            {"parts": [{"kind": "big", "sizes": [1, True]}]},
            "file.parts[0].sizes[1] is True, must be an integer",
        ),
        (
            {"parts": [{"kind": "big", "sizes": [1.0]}]},
            "file.parts[0].sizes[0] is 1.0, must be an integer",
        ),
        ({"by_name": []}, "file.by_name is [], must be an object"),
        ({"by_name": {"a": [3]}}, "file.by_name.a[0] is 3, must be a string"),
        ({"odd": 1}, "file has an unknown 'odd'"),
    ],
)
def test_names_the_value(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        parse_as(Whole, {**VALUES, **changed}, "file")


def test_names_what_is_missing() -> None:
    with pytest.raises(ValueError, match=r"^file has no 'by_name'$"):
        parse_as(Whole, {"name": "n", "flag": False}, "file")
    with pytest.raises(ValueError, match=r"^file is \[\], must be an object$"):
        parse_as(Whole, [], "file")
