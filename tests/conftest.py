"""Shared fixtures: small drawn receipts, a dataset built from them, and one written by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.cases import SEED
from tests.support.dataset_factory import write_dataset
from tests.support.receipts import write_receipts

# What takes minutes, and says nothing of whether a half works alone.
_ONCE = (
    "tests/benchmarks/",
    "tests/fuzz/",
    *(
        f"tests/end_to_end/test_{name}.py"
        for name in (
            *(
                "append_stores",
                "backup_workers",
                "buckets",
                "engines",
                "forget_killed",
                "kill_append",
                "kill_predict",
            ),
            *("non_finite", "run_stores", "search", "warm_start"),
        )
    ),
    "tests/pipeline/training/test_disk_full.py",
    "tests/test_help.py",
)

_LONGEST = ("tests/benchmarks/test_found_layouts.py", "tests/end_to_end/test_engines.py")


def pytest_report_header() -> str:
    """Names the seed of the random cases."""
    return f"TILLROLL_FUZZ_SEED={SEED}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is slow as a whole: programs, servers and benchmarks in processes of their own."""
    for item in items:
        if item.nodeid.startswith(_ONCE):
            item.add_marker(pytest.mark.once)
        if item.nodeid.startswith(("tests/end_to_end/", "tests/benchmarks/", "tests/fuzz/")):
            item.add_marker(pytest.mark.slow)
        if item.nodeid.startswith("tests/end_to_end/test_docs.py"):
            item.add_marker(pytest.mark.docs)
    # A worker of pytest-xdist always holds two tests. The longest ones come first, so that none
    # runs them one after the other while the others have nothing left to do.
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table of 44 small receipts in 7 layouts."""
    return write_receipts(tmp_path_factory.mktemp("receipts"))


@pytest.fixture(scope="session")
def build() -> Callable[..., int]:
    """Runs the build in this process, on one worker, without a progress bar."""
    pytest.importorskip("apache_beam")
    from beam_jobs.build import main

    def run(source: Path, output: Path, *options: str) -> int:
        workers = () if any(o.startswith("--workers") for o in options) else ("--workers=1",)
        return main(
            ["--input", str(source), "--output", str(output), "--quiet", *workers, *options]
        )

    return run


@pytest.fixture(scope="session")
def dataset(
    table: Path, build: Callable[..., int], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A dataset directory built from `table`; tests must not change it."""
    output = tmp_path_factory.mktemp("dataset") / "receipts"
    labels = ("--label", "total:float", "--label", "language:category")
    assert build(table, output, "--shards", "4", *labels) == 0
    return output


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 records in 4 layouts, written without Beam; tests must not change them."""
    return write_dataset(tmp_path_factory.mktemp("directory") / "receipts")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks measure here: starting TensorFlow some twenty times would take minutes."""
    from benchmarks.harness import timing
    from pipeline.distribution import strategies

    monkeypatch.setattr(timing, "in_new_process", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(strategies, "make_logical_cpus", lambda count: None)
