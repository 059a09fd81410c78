"""Modules of a user's project that have the names of tillroll's packages."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked import ROOT

pytestmark = pytest.mark.slow


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param(name, arguments, id=f"{name} {arguments[-1]}")
        for name, arguments in (
            ("schemas.py", ("-m", "beam_jobs.build")),
            ("schemas/__init__.py", ("-m", "beam_jobs.build")),
            ("schemas.py", ("-m", "pipeline.train")),
            ("schemas.py", ("-c", "import tillroll")),
            ("schemas.py", ("-c", "import pipeline")),
            ("pipeline.py", ("-c", "import tillroll")),
            ("pipeline/__init__.py", ("-c", "import tillroll")),
        )
    ],
)
def test_a_module_that_shadows_a_package_is_named(
    name: str, arguments: tuple[str, ...], tmp_path: Path
):
    shadow = tmp_path / name
    shadow.parent.mkdir(exist_ok=True)
    shadow.write_text("print('code of the user')")
    done = run(tmp_path, *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    *traceback, sentence = done.stderr.splitlines()
    assert (
        f"{shadow} is imported instead of tillroll's package {name[:-3].split('/')[0]}: "
        in sentence
    )
    assert (traceback == []) == (arguments[0] == "-m")


def test_folders_without_code_shadow_nothing(tmp_path: Path):
    for name in ("schemas", "pipeline"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").touch()
    done = run(tmp_path, "-c", "import tillroll; print(tillroll.InputConfig.__name__)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "InputConfig\n", "")
