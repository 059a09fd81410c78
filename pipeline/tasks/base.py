"""Tasks: models with inputs, losses and metrics, in the form that the trainer takes."""

import argparse
import dataclasses
import importlib
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pipeline.config import InputConfig
from pipeline.records.info import DatasetInfo
from schemas.command_line import Flag, Options, parse_value

_PREFIX = "model."  # of the flags of a task's options
MetricValue = Any | tuple[Any, Any]  # values, or values and weights


class TaskError(ValueError):
    """A method of a task returns something else than `Task` says."""


class Task(Protocol):
    """A model with its loss: a frozen dataclass whose fields are its options.

    Batches are dicts of the features that `inputs` names. Losses and metrics are values of single
    examples; the trainer weighs and averages them over all replicas. Where `inputs` asks for
    several views of an image, `loss` and `metrics` get the outputs for n · views images, those of
    an example side by side. Anyone can write a task: see `pipeline.tasks.layout_classifier` for
    one.

    Methods become part of a graph as they are written, without AutoGraph, as in Keras' `fit`: one
    with Python's `if` or `while` over tensors needs the decorator `tf.function`.
    """

    def inputs(self, info: DatasetInfo) -> InputConfig:
        """Returns the inputs of the model: size, channels and `features`, with "image"."""

    def build(self, info: DatasetInfo) -> Any:
        """Builds the Keras model, from images float32 [n, height, width, channels] in 0…1.

        The trainer calls it under the scope of the strategy. The model must have its variables, as
        one with a `keras.Input` has. As in Keras' `fit`, the losses of its layers (regularizers,
        `activity_regularizer` and `add_loss`) are added to the loss of each step; evaluations leave
        them out.
        """

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Computes the loss of each example, float32 [n]."""

    def metrics(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, MetricValue]:
        """Computes further values of each example by name, float32 [n]; higher is better.

        A metric that is undefined for some examples is a pair of values and weights, both [n]: an
        example of weight 0 is left out of the mean.
        """

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Computes the predictions to export and to draw, by name, [n, ...].

        "label" is the id of a value of the category that `inputs` names. Names that end in "mask"
        are images in 0…1, float32 [n, height, width].
        """


class Head(NamedTuple):
    """A category for whose values a variable has entries, one each.

    Attributes:
      category: the category, such as "layout".
      axis: axis of the variable along which the values stand, by id.
    """

    category: str
    axis: int = -1


@runtime_checkable
class TaskWithHeads(Protocol):
    """A task that says which variables belong to the values of a category.

    A warm start then takes over what was learned of each value, though the dataset has other values
    now, or has them in another order.
    """

    def heads(self, model: Any) -> Mapping[str, Head]:
        """Maps the `path` of variables of the Keras model to their category."""


@runtime_checkable
class TaskWithInputCheck(Protocol):
    """A task that does not go with all inputs that the options of a run can make of its own."""

    def check_inputs(self, config: InputConfig) -> None:
        """Raises ValueError unless the inputs, as a run has changed them, fit the task."""


def check_inputs(task: Task, config: InputConfig) -> None:
    """Checks that a task goes with the inputs of a run, if it is a `TaskWithInputCheck`.

    Raises:
      ValueError: it does not.
    """
    if isinstance(task, TaskWithInputCheck):
        task.check_inputs(config)


def heads_of(task: Task, model: Any, info: DatasetInfo) -> Mapping[str, Head]:
    """Returns the heads that a task tells; none if it is no `TaskWithHeads`.

    Raises:
      ValueError: a head does not fit the model or the dataset.
    """
    if not isinstance(task, TaskWithHeads):
        return {}
    heads = task.heads(model)
    shapes = {variable.path: tuple(variable.shape) for variable in model.weights}
    for path, head in heads.items():
        if path not in shapes:
            raise ValueError(
                f"{task}: heads names {path!r}, which is none of the model's variables: "
                f"{', '.join(shapes)}"
            )
        values = len(info.vocabulary(head.category))
        rank = len(shapes[path])
        if not -rank <= head.axis < rank or shapes[path][head.axis] != values:
            raise ValueError(
                f"{task}: heads gives axis {head.axis} of {path!r} to {head.category}, which has "
                f"{values} values, but the variable has the shape {list(shapes[path])}"
            )
    return heads


def load_task(name: str, options: Mapping[str, str]) -> Task:
    """Makes a task from `package.module:name` and its options as text.

    Args:
      name: where its dataclass is, or a name in it of a task or of what makes one.
      options: field to value, as on a command line.

    Raises:
      ValueError: there is no such task, or no such option, or a value has another type or is
        refused; then the sentence names the flag, such as "--model.width".
    """
    made = _find_task(name)
    hints = typing.get_type_hints(made)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(made)}
    flags = Options[Any](made if isinstance(made, type) else type(made), prefix=_PREFIX)
    values = {}
    for option, text in options.items():
        if option not in fields:
            raise ValueError(
                f"task {name!r} has no option {option!r}: choose among "
                f"{', '.join(fields) or 'none'}"
            )
        try:
            values[option] = parse_value(text, fields[option])
        except ValueError as error:
            raise ValueError(f"{flags.flag(option)} {error}") from error
    task: Any = (
        flags.make(argparse.Namespace(), **values)
        if isinstance(made, type)
        else flags.replace(made, argparse.Namespace(), **values)
    )
    return task


def task_options(name: str) -> Options[Any]:
    """Describes the options of a task, for the help of commands.

    Raises:
      ValueError: there is no such task.
    """
    made = _find_task(name)
    flags = {field.name: Flag(parse=str) for field in dataclasses.fields(made)}
    if isinstance(made, type):
        return Options(made, prefix=_PREFIX, **flags)
    defaults = {name: Flag(parse=str, default=str(getattr(made, name))) for name in flags}
    return Options(type(made), prefix=_PREFIX, **defaults)


def _find_task(name: str) -> Any:
    """Imports the dataclass, or the object of one, that `package.module:name` means."""
    module_name, separator, attribute = name.partition(":")
    if not separator:
        raise ValueError(
            f"task {name!r} is not a package.module:name, such as "
            "pipeline.tasks.text_detector:TextDetector"
        )
    try:
        made = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"task {name!r} can't be found: {error}") from error
    if not dataclasses.is_dataclass(made):
        raise ValueError(f"task {name!r} is not a dataclass: its options would have no names")
    return made
