"""Memory that a process keeps from batch to batch."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.distribution import host_memory
from pipeline.distribution.host_memory import keep_host_memory
from tests.support.processes import run_python

pytestmark = pytest.mark.slow

ALLOCATOR = (
    "TF_CPU_ALLOCATOR_USE_BFC",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB",
    "LD_PRELOAD",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "GLIBC_TUNABLES",
)


def printed(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Runs `tests.support.host_memory_worker`, and returns what it prints."""
    inherited = {name: value for name, value in os.environ.items() if name not in ALLOCATOR}
    worker = ("-m", "tests.support.host_memory_worker", *command)
    return run_python(*worker, environment={**inherited, **(environment or {})}).stdout


def touched_anew(
    environment: Mapping[str, str], *batches: str, begin: str = "made by name"
) -> list[float]:
    """Shares of the memory of batches that the kernel has to hand out again."""
    lines = printed("touched_anew", begin, *batches, environment=environment).splitlines()
    return list(map(float, lines))


# TensorFlow turns oneDNN on by itself on processors with AVX512_VNNI. Its allocator keeps memory
# of images whatever is asked for, so that nothing would be tested unless it is off.
NO_ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "0"}


@pytest.mark.parametrize("begin", ["made by name", "in training"])
def test_memory_of_a_batch_is_kept_for_the_next(begin: str):
    assert max(touched_anew(NO_ONEDNN, "images", "records", begin=begin)) < 0.1


def test_memory_is_kept_with_onednn():
    assert max(touched_anew({"TF_ENABLE_ONEDNN_OPTS": "1"}, "images", "records")) < 0.1


@pytest.mark.parametrize(
    ("chosen", "batch"),
    [
        pytest.param({"TF_CPU_ALLOCATOR_USE_BFC": "false"}, "images", id="C library"),
        pytest.param({"MALLOC_TRIM_THRESHOLD_": "0"}, "records", id="limit of the C library"),
    ],
)
def test_an_allocator_that_was_chosen_stays(chosen: dict[str, str], batch: str):
    assert min(touched_anew(NO_ONEDNN | chosen, batch)) > 0.9


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is chosen yet, and what a test chooses is taken back."""
    for name in ALLOCATOR:
        monkeypatch.setenv(name, "")  # so that it is brought back
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("allocator")
def test_an_allocator_that_was_preloaded_stays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libtcmalloc_minimal.so.4")
    keep_host_memory()
    assert "TF_CPU_ALLOCATOR_USE_BFC" not in os.environ


@pytest.mark.usefixtures("allocator")
@pytest.mark.parametrize(
    ("limit", "expected_mb"),
    [("max\n", None), ("3221225472\n", 3072), ("9223372036854771712\n", None)],
)
def test_the_allocator_stops_at_the_memory_of_the_container(
    limit: str, expected_mb: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "memory.max").write_text(limit)
    paths = (tmp_path / "memory.max", tmp_path / "missing")
    monkeypatch.setattr(host_memory, "_CONTAINER_LIMITS", paths)
    monkeypatch.setattr(host_memory, "_tensorflow_has_run", lambda: False)
    keep_host_memory()
    assert os.environ["TF_CPU_ALLOCATOR_USE_BFC"] == "true"
    machine_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    assert int(os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"]) == (expected_mb or machine_mb)


@pytest.mark.usefixtures("allocator")
def test_a_choice_that_comes_too_late_is_said():
    tf.zeros([1]).numpy()  # TensorFlow has chosen its allocator now, if it had not before
    with pytest.warns(RuntimeWarning, match="before anything else of TensorFlow, or set TF_CPU"):
        keep_host_memory()
    assert not any(name in os.environ for name in ALLOCATOR)


def test_asking_whether_tensorflow_has_run_changes_nothing():
    assert printed("tensorflow_has_run").split() == ["False", "False", "True", "True"]
