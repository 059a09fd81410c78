"""Tasks by name, with options as text; and the one of the documentation."""

import ast
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from pipeline.tasks.base import load_task, task_options
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.tasks.text_detector import TextDetector
from schemas.receipt import Label
from tests.support.dataset_factory import write_dataset
from tests.support.training import train

DOCS = Path(__file__).parents[3] / "docs"


@dataclass(frozen=True, kw_only=True)
class Options:
    """One field of each type."""

    number: int = 1
    rate: float = 0.5
    name: str = "a"
    fast: bool = False
    mode: Literal["low", 2] = "low"
    sizes: tuple[int, ...] = (1,)
    names: tuple[str, ...] = ()
    other: dict[str, int] | None = None
    limit: int | None = 5
    depth: Literal["all"] | int | None = None


@dataclass(frozen=True)
class NoOptions:
    """Nothing to choose."""


PRESET = Options(number=7, rate=2.0)
JUST_A_FUNCTION = len


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("number", "-12", -12),
        ("rate", "1e-3", 1e-3),
        ("rate", "2", 2.0),
        ("name", "12", "12"),
        ("name", "", ""),
        ("fast", "true", True),
        ("fast", "false", False),
        ("mode", "low", "low"),
        ("mode", "2", 2),
        ("sizes", "1, 2,3", (1, 2, 3)),
        ("names", "a,b", ("a", "b")),
        ("limit", "3", 3),
        ("limit", "none", None),
        ("limit", "None", None),
        ("depth", "all", "all"),
        ("depth", "4", 4),
        ("depth", "none", None),
    ],
)
def test_options_are_of_their_field_s_type(option: str, text: str, value: object):
    task = load_task(f"{__name__}:Options", {option: text})
    assert getattr(task, option) == value
    assert type(getattr(task, option)) is type(value)


def test_preset_keeps_what_is_not_given():
    task = load_task(f"{__name__}:PRESET", {"number": "8"})
    assert (task.number, task.rate) == (8, 2.0)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        pytest.param(
            "pipeline.tasks.text_detector",
            {},
            "task 'pipeline.tasks.text_detector' is not a package.module:name, such as "
            "pipeline.tasks.text_detector:TextDetector",
            id="no name",
        ),
        pytest.param(
            "pipeline.nowhere:Task", {}, "can't be found: No module named", id="no module"
        ),
        pytest.param(
            "pipeline.tasks.base:Nothing",
            {},
            "can't be found: module .* has no attribute",
            id="no such",
        ),
        pytest.param(
            f"{__name__}:JUST_A_FUNCTION",
            {},
            "is not a dataclass: its options would have no names",
            id="no dataclass",
        ),
        pytest.param(
            f"{__name__}:Options",
            {"size": "3"},
            "choose among number, rate, name, fast, mode, sizes, names, other, limit, depth",
            id="no such option",
        ),
        pytest.param(
            f"{__name__}:NoOptions",
            {"a": ""},
            "choose among none",
            id="no option at all",
        ),
        *(
            pytest.param(
                f"{__name__}:Options",
                {option: text},
                sentence,
                id=f"{option}={text}",
            )
            for option, text, sentence in (
                ("number", "1.5", "^--model.number must be a whole number, got '1.5'"),
                ("rate", "fast", "rate must be a number, got 'fast'"),
                ("fast", "yes", "fast must be true or false, got 'yes'"),
                ("mode", "high", "mode must be one of low, 2, got 'high'"),
                ("sizes", "1,a", "sizes must be a whole number, got 'a'"),
                ("limit", "many", r"limit must be a whole number or none, got 'many'"),
                ("other", "1", r"other must be .*dict\[str, int\].*, got '1'"),
            )
        ),
        pytest.param(
            "pipeline.tasks.text_detector:TextDetector",
            {"height": "100"},
            "^--model.height must be a multiple of 16 pixels, got 100",
            id="the task's own check",
        ),
    ],
)
def test_errors(name: str, options: dict[str, str], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        load_task(name, options)


def test_own_tasks_load():
    shallow = load_task("pipeline.tasks.layout_classifier:LayoutClassifier", {"width": "8"})
    assert shallow == LayoutClassifier(width=8)
    detector = load_task("pipeline.tasks.text_detector:TextDetector", {"augment": "false"})
    assert detector == TextDetector(augment=False)
    options = task_options("pipeline.tasks.text_detector:TextDetector")
    assert options.flag("augment") == "--model.augment"


@pytest.fixture
def documented(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.syspath_prepend(DOCS)
    monkeypatch.delitem(sys.modules, "own_task", raising=False)
    return __import__("own_task")


def test_documented_task_is_short(documented: types.ModuleType):
    text = Path(documented.__file__).read_text()
    assert len(text.splitlines()) < 40
    assert ast.get_docstring(ast.parse(text))


def test_documented_task_learns(documented: types.ModuleType, tmp_path: Path):
    directory = write_dataset(
        tmp_path / "receipts", labels=[Label(name="total", type="float")], shards=2
    )
    task = load_task("own_task:TotalReader", {"size": "32", "filters": "8"})
    assert task == documented.TotalReader(size=32, filters=8)
    model, losses, metrics = train(task, directory, steps=40, learning_rate=3e-2)
    assert np.mean(losses[-5:]) < 0.4 * losses[0]
    assert set(metrics) == {"within_a_tenth"}
    total = task.predictions(model(np.ones((2, 32, 32, 3), np.float32)))["total"]
    assert total.shape == (2,)


def test_documented_task_takes_refunds(documented: types.ModuleType):
    """The prediction is the label that the loss calls right, also below 0."""
    task = documented.TotalReader()
    totals = np.array([-5.0, -0.5, 0.0, 0.5, 99.5], np.float32)
    scaled = np.sign(totals) * np.log1p(np.abs(totals))
    outputs = scaled[:, None]
    np.testing.assert_allclose(task.loss(outputs, {"total": totals}), 0, atol=1e-6)
    np.testing.assert_allclose(task.predictions(outputs)["total"], totals, rtol=1e-5)
    hits = task.metrics(outputs, {"total": totals})["within_a_tenth"]
    np.testing.assert_array_equal(hits, np.ones(5))
