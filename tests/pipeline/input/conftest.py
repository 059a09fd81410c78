"""Fixture of the input pipeline's tests: a dataset with a label."""

from pathlib import Path

import pytest

from schemas.receipt import Label
from tests.support.dataset_factory import write_dataset


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 records in four layouts, with the label `total`; tests must not change them."""
    labels = (Label(name="total", type="float"),)
    return write_dataset(tmp_path_factory.mktemp("dataset") / "receipts", labels=labels)
