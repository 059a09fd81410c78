"""Fixture of the tests that harm a dataset."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    """Copy of `dataset` that the test may change."""
    return Path(shutil.copytree(dataset, tmp_path / "copy"))
