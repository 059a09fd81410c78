"""Modules import only what they may, and importing touches nothing."""

import importlib.util
import os

import pytest

from tests.support.processes import ROOT, run_python

pytestmark = pytest.mark.slow

# What the modules of a package must not load, nor those that they import.
BANNED = {
    "schemas": {"tensorflow", "keras", "apache_beam", "beam_jobs", "pipeline", "benchmarks"},
    "beam_jobs": {"tensorflow", "keras", "pipeline", "benchmarks"},
    "pipeline": {"apache_beam", "beam_jobs", "benchmarks"},
    "benchmarks": set(),
}
LIBRARIES = {
    "schemas": ("numpy", "tensorflow_metadata"),
    "beam_jobs": ("apache_beam", "apache_beam.runners.worker.operations", "requests"),
    "pipeline": ("tensorflow", "keras", "matplotlib", "optuna", "tensorflow_metadata"),
    "benchmarks": (
        "numpy",
        "apache_beam.runners.worker.operations",
        "requests",
        "tensorflow",
        "keras",
        "matplotlib",
        "optuna",
    ),
}


def modules(package: str) -> list[str]:
    found = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__main__.py"
    ]
    assert found
    return found


@pytest.mark.parametrize("package", BANNED)
def test_importing_touches_nothing(package: str):
    """A notebook's environment, backend of matplotlib, logs and warnings are its user's choice."""
    if importlib.util.find_spec(LIBRARIES[package][0]) is None:
        pytest.skip(f"{LIBRARIES[package][0]} is not installed in this environment")
    environment = {name: text for name, text in os.environ.items() if "LOG_LEVEL" not in name}
    *changes, summary = run_python(
        "-m",
        "tests.support.import_probe",
        ",".join(LIBRARIES[package]),
        ",".join(modules(package)),
        environment=environment | {"MPLBACKEND": "svg", "PYTHONDONTWRITEBYTECODE": "1"},
    ).stdout.splitlines()
    imported, loaded = summary.split(" imported; loaded: ")
    assert changes == []
    assert BANNED[package].isdisjoint(loaded.split())
    if package == "benchmarks":  # some of its modules need libraries of other environments
        assert int(imported) > 5
    else:
        assert int(imported) == len(modules(package))


@pytest.mark.parametrize(
    "module",
    [
        "beam_jobs.prepare.chunks",
        "beam_jobs.sharding.deal",
        "beam_jobs.sharding.splits",
        "pipeline.sampling.batch_order",
        "pipeline.sampling.plan",
    ],
)
def test_arithmetic_imports_neither_beam_nor_tensorflow(module: str):
    assert large_libraries(module) == []


def test_a_search_imports_no_tensorflow():
    """Its trials do, in processes of their own."""
    pytest.importorskip("optuna")
    assert large_libraries("pipeline.search") == []


def large_libraries(module: str) -> list[str]:
    """Libraries that a module imports, of those that take seconds."""
    code = (
        f"import sys, {module}\n"
        "print(*[name for name in ('apache_beam', 'tensorflow') if name in sys.modules])"
    )
    return run_python("-c", code).stdout.split()


@pytest.mark.parametrize("module", ["build", "verify"])
def test_the_commands_hide_what_libraries_say_at_import(module: str):
    pytest.importorskip("apache_beam")
    assert run_python("-m", f"beam_jobs.{module}", "--help").stderr == ""
