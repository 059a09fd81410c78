"""The public API: `pipeline`, and the same names in `tillroll`."""

import importlib.util
import pkgutil
import sys
import tomllib

import pytest

import pipeline
import schemas
import tillroll
from tests.support.processes import ROOT, run_python

pytestmark = pytest.mark.slow

OPTIONS = ("Balance", "InputConfig", "RandomCrop", "Reading")
HEAVY = ("tensorflow", "keras", "numpy", "google.protobuf")

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="tensorflow is not installed in this environment",
)


def imported_by(code: str) -> list[str]:
    """Heavy packages that a new process has imported after running the code."""
    done = run_python("-c", f"{code}\nimport sys\nprint(*{{*{HEAVY}}} & {{*sys.modules}})")
    return done.stdout.split()


def test_the_table_and_the_options_are_all_of_the_public_api():
    assert sorted([*OPTIONS, *pipeline._MODULES]) == sorted(pipeline.__all__)


@needs_tensorflow
@pytest.mark.parametrize("name", pipeline.__all__)
def test_each_name_is_the_same_object_in_its_module_and_in_both_packages(name: str):
    found = getattr(pipeline, name)
    assert found.__module__ == pipeline._MODULES.get(name, "pipeline.config")
    assert getattr(sys.modules[found.__module__], name) is found
    assert getattr(tillroll, name) is found


@pytest.mark.parametrize("package", ["pipeline", "tillroll"])
@pytest.mark.parametrize("name", OPTIONS)
def test_options_import_neither_tensorflow_nor_numpy(package: str, name: str):
    assert imported_by(f"from {package} import {name}") == []


@needs_tensorflow
@pytest.mark.parametrize("package", ["pipeline", "tillroll"])
def test_a_late_name_imports_what_it_needs(package: str):
    assert "tensorflow" in imported_by(f"from {package} import make_dataset")


def test_no_name_is_that_of_a_module():
    modules = {each.name for each in pkgutil.iter_modules(pipeline.__path__)}
    assert "config" in modules
    assert not modules & {*pipeline.__all__}


@pytest.mark.parametrize("package", [pipeline, tillroll])
def test_names_are_listed_before_they_are_used(package):
    assert {*package.__all__} <= {*dir(package)}


@pytest.mark.parametrize("package", [pipeline, tillroll])
def test_other_names_are_unknown(package):
    with pytest.raises(
        AttributeError, match=f"module '{package.__name__}' has no attribute 'make_datasets'"
    ):
        package.make_datasets  # noqa: B018


def test_there_is_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "schemas.__version__"}
    assert tillroll.__version__ == schemas.__version__
