"""Variables of a model by name: which are trained, and which a warm start leaves as they are."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pipeline.records.info import DatasetInfo
from pipeline.tasks.base import Task, heads_of

HEAD = "head"
_NUMBERED = re.compile(r"(.+)_(\d+)")


def comparable_names(paths: Sequence[str]) -> list[str]:
    """Makes names that the variables of two models of one architecture share.

    Keras numbers the layers of a process, not those of a model: the dense layers of the first model
    that a process builds are `dense` and `dense_1`, those of the second `dense_2` and `dense_3`. So
    numbers are counted from the lowest that a name has in the model.

    Args:
      paths: the `path` of each variable of a model.

    Returns:
      A name for each; none comes twice.
    """
    split = [[_number(part) for part in path.split("/")] for path in paths]
    lowest: dict[str, int] = {}
    for base, number in (part for parts in split for part in parts):
        lowest[base] = min(number, lowest.get(base, number))
    times: Counter[str] = Counter()
    names = []
    for parts in split:
        name = "/".join(
            f"{base}_{number - lowest[base]}" if number > lowest[base] else base
            for base, number in parts
        )
        times[name] += 1
        names.append(f"{name} ({times[name]})" if times[name] > 1 else name)
    return names


def _number(part: str) -> tuple[str, int]:
    match = _NUMBERED.fullmatch(part)
    return (match[1], int(match[2])) if match else (part, 0)


def choose_variables(
    task: Task, model: Any, info: DatasetInfo, names: Sequence[str], *, option: str
) -> list[Any]:
    """Finds the variables of a model that names stand for.

    A name is "head", for the heads of the task, or stands between slashes in the name of variables,
    as of `comparable_names`: "dense_1", "sequential/dense_1" and "dense_1/kernel" are in
    "sequential/dense_1/kernel".

    Args:
      task: the task of the model.
      model: the Keras model.
      info: the dataset.
      names: the names.
      option: the option that has the names, for errors.

    Returns:
      The variables, in the model's order.

    Raises:
      ValueError: a name stands for no variable.
    """
    heads = heads_of(task, model, info)
    named = comparable_names([variable.path for variable in model.weights])
    chosen: set[int] = set()
    for name in names:
        found = [
            number
            for number, variable in enumerate(model.weights)
            if (name == HEAD and variable.path in heads) or f"/{name}/" in f"/{named[number]}/"
        ]
        if not found:
            layers = dict.fromkeys(path.rpartition("/")[0] or path for path in named)
            known = [HEAD, *layers] if heads else layers
            reason = f"but {task} tells no heads" if name == HEAD else "which is no layer"
            raise ValueError(f"{option} names {name!r}, {reason}: choose among {', '.join(known)}")
        chosen.update(found)
    return [model.weights[number] for number in sorted(chosen)]


def train_only(model: Any, chosen: Sequence[Any]) -> None:
    """Leaves all variables but those chosen as they are: no step changes them.

    A layer without any of them runs as in inference where that makes a difference, as with the
    averages of a batch normalization.

    Raises:
      ValueError: none of those chosen is changed by gradients.
    """
    _freeze(model, {id(variable) for variable in chosen})
    if not model.trainable_variables:
        raise ValueError(
            "train_only names no variable that gradients change, only "
            f"{', '.join(variable.path for variable in chosen)}: name another layer"
        )


def _freeze(layer: Any, kept: set[int]) -> None:
    if not any(id(variable) in kept for variable in layer.weights):
        layer.trainable = False
        return
    for variable in layer.weights:
        if id(variable) not in kept:
            variable.trainable = False
    for inner in getattr(layer, "layers", ()):
        _freeze(inner, kept)


def trained_sentence(model: Any) -> str:
    """Says how many variables and weights of a model are trained, and which."""
    trained = {id(variable) for variable in model.trainable_variables}
    names = comparable_names([variable.path for variable in model.weights])
    pairs = list(zip(names, model.weights, strict=True))
    own = [(name, variable) for name, variable in pairs if id(variable) in trained]
    weights, all_weights = (sum(math.prod(each.shape) for _, each in some) for some in (own, pairs))
    return (
        f"training {len(own)} of {len(pairs)} variables, {weights:,} of {all_weights:,} weights: "
        f"{', '.join(name for name, _ in own)}"
    )
