"""What the trainer needs to know of a model: a task, which anyone can write."""

import contextlib
import dataclasses
import importlib
import types
import typing
from collections.abc import Mapping
from typing import Any, Protocol

from pipeline.config import InputConfig
from pipeline.records.info import DatasetInfo

MetricValue = Any | tuple[Any, Any]  # values, or values and weights


class Task(Protocol):
    """A model with its loss: a frozen dataclass whose fields are its options.

    Batches are dicts of the features that `inputs` names. Losses and metrics are values of single
    examples; the trainer weighs and averages them over all replicas.
    """

    def inputs(self, info: DatasetInfo) -> InputConfig:
        """What the model wants to see: size, channels and, among `features`, "image"."""

    def build(self, info: DatasetInfo) -> Any:
        """The Keras model, from images float32 [n, height, width, channels] in 0…1 to outputs.

        Called under the scope of the strategy.
        """

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Loss of each example, float32 [n]."""

    def metrics(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, MetricValue]:
        """Further values of each example by name, float32 [n]; higher is better.

        A metric that says nothing of some examples is a pair of values and weights, both [n]: an
        example of weight 0 is left out of its mean.
        """

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """What is exported and drawn, by name, [n, ...].

        "label" is the id of a value of the category that `inputs` names; what ends in "mask" is
        an image in 0…1, [n, height, width].
        """


def load_task(name: str, options: Mapping[str, str]) -> Task:
    """Makes a task from `package.module:name` and its options as text.

    Args:
      name: where its dataclass is, or a name in it of a task or of what makes one.
      options: field to value, as on a command line.

    Raises:
      ValueError: there is no such task, or no such option, or a value has another type.
    """
    module_name, separator, attribute = name.partition(":")
    if not separator:
        raise ValueError(
            f"task {name!r} is no package.module:name, as pipeline.tasks.text_detector:TextDetector"
        )
    try:
        made = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"task {name!r} can't be found: {error}") from error
    if not dataclasses.is_dataclass(made):
        raise ValueError(f"task {name!r} is no dataclass: its options would have no names")
    hints = typing.get_type_hints(made)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(made)}
    for option in options:
        if option not in fields:
            raise ValueError(
                f"task {name!r} has no option {option!r}: choose among "
                f"{', '.join(fields) or 'none'}"
            )
    values = {option: _parse(option, text, fields[option]) for option, text in options.items()}
    task: Any = made(**values) if isinstance(made, type) else dataclasses.replace(made, **values)
    return task


def _parse(name: str, text: str, type_: Any) -> Any:
    """A value of a field's type.

    It is int, float, str, bool, a Literal, a tuple of one of them, or a union of several; where
    None is among these, "none" is None.
    """
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin in (typing.Union, types.UnionType):
        if types.NoneType in arguments and text.lower() == "none":
            return None
        for choice in arguments:  # in their order, so that "3" is an int of int | str
            with contextlib.suppress(ValueError):
                return _parse(name, text, choice)
    if origin is typing.Literal:
        for choice in arguments:
            if text == str(choice):
                return choice
        raise ValueError(f"{name} must be one of {', '.join(map(str, arguments))}, got {text!r}")
    if origin is tuple:
        return tuple(_parse(name, each.strip(), arguments[0]) for each in text.split(","))
    if type_ is bool and text in ("true", "false"):
        return text == "true"
    if type_ in (int, float, str):
        try:
            return type_(text)
        except ValueError:
            pass
    raise ValueError(f"{name} must be {getattr(type_, '__name__', type_)}, got {text!r}")
