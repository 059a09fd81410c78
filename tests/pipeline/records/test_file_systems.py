"""File systems that TensorFlow lacks: which there are, and what is said where they are missing."""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.records.file_systems import TENSORFLOW_IO_SCHEMES
from tests.support.processes import run_python

pytestmark = pytest.mark.slow

REMEDY = (
    "pip install 'tillroll[io]' brings tensorflow-io and the TensorFlow 2.17 it works with; "
    "without it, choose a local directory or one of file, gs, ram"
)
UNKNOWN = (
    "choose a local directory or one of file, gs, ram, or az, har, hdfs, http, https, oss, s3, "
    "viewfs with pip install 'tillroll[io]'"
)


def in_a_process(program: str, *arguments: str, environment: Mapping[str, str]) -> str:
    """Runs a program in its own process, as file systems stay loaded; returns what it prints."""
    variables = {**os.environ, **environment}
    return run_python("-c", program, *arguments, environment=variables).stdout


def refusals(directories: Iterable[str], package: Path) -> list[str]:
    """Returns the errors of `load_info` where `package` is the tensorflow_io that it finds."""
    program = """
import json, sys
from pipeline.records.info import load_info
sentences = []
for each in sys.argv[1:]:
    try:
        load_info(each)
    except ValueError as error:
        sentences.append(str(error))
print(json.dumps(sentences))
"""
    environment = {"PYTHONPATH": f"{package.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return json.loads(in_a_process(program, *directories, environment=environment))


def test_without_tensorflow_io(tmp_path: Path):
    package = tmp_path / "tensorflow_io"
    package.mkdir()
    (package / "__init__.py").write_text("raise ModuleNotFoundError(__name__)")
    directories = ["s3://bucket/receipts", "az://account/receipts", "foo://receipts", "azfs://a/b"]
    assert refusals(directories, package) == [
        f"TensorFlow {tf.__version__} can't read s3:// by itself: {REMEDY}",
        f"TensorFlow {tf.__version__} can't read az:// by itself: {REMEDY}",
        f"neither TensorFlow nor tensorflow-io can read foo://: {UNKNOWN}",
        "neither TensorFlow nor tensorflow-io can read azfs://; what Beam calls azfs:// is az:// "
        f"here: {UNKNOWN}",
    ]


def test_with_a_tensorflow_io_that_does_not_load(tmp_path: Path):
    """With another TensorFlow its libraries can't be opened, of which its import warns."""
    spec = find_spec("tensorflow_io")
    if spec is None:
        pytest.skip("tensorflow-io is not installed")
    package = tmp_path / "tensorflow_io"
    shutil.copytree(Path(spec.origin).parent, package, ignore=shutil.ignore_patterns("*.so"))
    assert refusals(["s3://bucket/receipts"], package) == [
        f"TensorFlow {tf.__version__} can't read s3:// by itself, and the file systems of the "
        f"tensorflow-io that is installed don't load with it: {REMEDY}"
    ]


def test_the_schemes_of_tensorflow_io():
    if find_spec("tensorflow_io") is None:
        pytest.skip("tensorflow-io is not installed")
    program = """
import tensorflow as tf
from pipeline.records.file_systems import load_file_system
own = set(tf.io.gfile.get_registered_schemes())
load_file_system("az://account/receipts")
print(*sorted(set(tf.io.gfile.get_registered_schemes()) - own))
"""
    assert tuple(in_a_process(program, environment={}).split()) == TENSORFLOW_IO_SCHEMES
