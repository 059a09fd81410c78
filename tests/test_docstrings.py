"""Docstrings say what a thing is or does: they begin with a noun or a verb, not with a question."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.processes import ROOT

PACKAGES = ("schemas", "beam_jobs", "pipeline", "tillroll", "benchmarks", "tests")
QUESTIONS = re.compile(r"(What|Which|Who|Whose|How|Where|Whether|Why|Of|As|Those)\b")


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yields line and text of the docstrings of a module and of all that it defines."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring


def riddles(text: str) -> list[int]:
    """Lines of the docstrings that begin with a word of a question."""
    return [line for line, docstring in docstrings(text) if QUESTIONS.match(docstring)]


def test_riddles_are_found():
    text = (
        '"""As a module."""\ndef plan():\n    """Plans."""\n    def own():\n        """What."""\n'
    )
    assert riddles(text) == [1, 5]
    assert riddles('"""Assigns splits."""\n\nclass Of:\n    """\n    Of a kind.\n    """\n') == [4]


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_a_noun_or_a_verb(package: str):
    paths = sorted((ROOT / package).rglob("*.py"))
    texts = {path.relative_to(ROOT): path.read_text() for path in paths}
    assert any(list(docstrings(text)) for text in texts.values())
    assert {str(path): found for path, text in texts.items() if (found := riddles(text))} == {}
