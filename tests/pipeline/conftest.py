"""Fixture of the pipeline's tests: a dataset."""

from pathlib import Path

import pytest

from tests.support.dataset_factory import write_dataset


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 records in four layouts; tests must not change them."""
    return write_dataset(tmp_path_factory.mktemp("dataset") / "receipts")
