"""A model whose signature is real, and whose TensorFlow is `tests/support/fake_tensorflow`."""

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.processes import ROOT

if TYPE_CHECKING:  # workers import this module, and need no pytest
    import pytest

# What happens to an image of this width.
KILLED, FAILS, FAILS_IN_A_BATCH, NOT_FINITE, NOT_TEXT, SLEEPS, OUT_OF_MEMORY = range(101, 108)
# Variable with the file in which each load of a model lists its process.
LOADS = "FAKE_TENSORFLOW_LOADS"
STAND_IN = ROOT / "tests" / "support" / "fake_tensorflow"
OUTPUTS = {
    "file_bytes": (7, [-1]),
    "inverse": (1, [-1, 2]),
    "text": (7, [-1]),
    "width": (9, [-1]),
}


def model_bytes(
    outputs: Mapping[str, tuple[int, list[int]]] = OUTPUTS,
    *,
    inputs: Mapping[str, tuple[int, list[int]]] | None = None,
    signature: str = "serving_default",
    tags: tuple[str, ...] = ("serve",),
) -> bytes:
    """Contents of saved_model.pb; a tensor is (number of its type, sides)."""
    from beam_jobs.models.signature import saved_model_class

    model = saved_model_class()()
    graph = model.meta_graphs.add()
    graph.meta_info_def.tags.extend(tags)
    tensors: list[tuple[Any, Mapping[str, tuple[int, list[int]]]]] = [
        (graph.signature_def[signature].inputs, inputs or {"image_bytes": (7, [-1])}),
        (graph.signature_def[signature].outputs, outputs),
    ]
    for holder, described in tensors:
        for name, (dtype, sides) in described.items():
            holder[name].dtype = dtype
            for side in sides:
                holder[name].tensor_shape.dim.add(size=side)
    return model.SerializeToString()


EMBEDDING = {"embedding": (1, [-1, 4])}


def write_model(directory: Path, outputs: Mapping[str, tuple[int, list[int]]] = OUTPUTS) -> Path:
    """Writes a model for the TensorFlow that stands in."""
    directory.mkdir(parents=True)
    (directory / "saved_model.pb").write_bytes(model_bytes(outputs))
    return directory


def variables() -> dict[str, str]:
    """Variables of a process that is to import the TensorFlow that stands in."""
    return {"PYTHONPATH": os.pathsep.join([str(STAND_IN), str(ROOT)])}


def stand_in() -> Any:
    """Imports the TensorFlow that stands in, whatever this process has imported before."""
    before = sys.modules.pop("tensorflow", None)
    sys.path.insert(0, str(STAND_IN))
    try:
        return importlib.import_module("tensorflow")
    finally:
        sys.path.remove(str(STAND_IN))
        del sys.modules["tensorflow"]
        if before is not None:
            sys.modules["tensorflow"] = before


def put_in_place(monkeypatch: "pytest.MonkeyPatch") -> None:
    """Lets this process and those that it starts import the TensorFlow that stands in."""
    from beam_jobs.models import model as boundary

    monkeypatch.setitem(sys.modules, "tensorflow", stand_in())
    monkeypatch.syspath_prepend(STAND_IN)  # of this process, and so of its workers
    for name, value in variables().items():
        monkeypatch.setenv(name, value)
    boundary._load.cache_clear()
    boundary.tensorflow_version.cache_clear()
