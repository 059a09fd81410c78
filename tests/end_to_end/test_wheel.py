"""The wheel that a release uploads: its files, its modules, its commands."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

import schemas

ROOT = Path(__file__).parents[2]
UNPUBLISHED = {"benchmarks", "docs", "tests"}
# Not every folder with modules: a job that takes `setup.py` along makes one for a moment.
FOLDERS = sorted(path.parent for path in ROOT.glob("[!.]*/__init__.py"))
PACKAGES = sorted({path.name for path in FOLDERS} - UNPUBLISHED)
NEEDS = {"beam_jobs": "apache_beam", "pipeline": "tensorflow"}


def python_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.glob("*/**/*.py")}


def published(files: set[str]) -> set[str]:
    return {name for name in files if name.split("/")[0] not in UNPUBLISHED}


def run(*command: str | Path, cwd: Path) -> str:
    # Neither the checkout nor its editable installation may stand in for what the wheel lacks.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages and of the files that pyproject.toml names."""
    copy = tmp_path_factory.mktemp("source")
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, copy)
    for package in FOLDERS:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, copy / package.name, ignore=ignore)
    return copy


def build(source: Path, folder: Path) -> Path:
    # The build backend writes beside what it reads.
    copy = shutil.copytree(source, folder / "source")
    code = "import sys, setuptools.build_meta as m; m.build_wheel(sys.argv[1])"
    run(sys.executable, "-c", code, folder, cwd=copy)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what tillroll depends on."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    python = folder / "bin" / "python"
    install = ("-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
    run(python, *install, wheel, cwd=folder)
    # Of this folder Python reads no .pth file, so that the editable installation stays out.
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
    Path(site.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def files_in(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_holds_every_module_and_nothing_else(source: Path, wheel: Path):
    files = files_in(wheel)
    assert {name for name in files if name.endswith(".py")} == published(python_files(source))
    packages = {name.split("/")[0] for name in files if ".dist-info/" not in name}
    assert {f"{package}/py.typed" for package in packages} <= files


def test_wheel_lacks_a_folder_without_init(source: Path, tmp_path: Path):
    copy = shutil.copytree(source, tmp_path / "copy")
    folder = copy / "pipeline" / "forgotten"
    folder.mkdir()
    (folder / "module.py").write_text("")
    wheel = build(copy, tmp_path)
    assert published(python_files(copy)) - files_in(wheel) == {"pipeline/forgotten/module.py"}


def test_version_is_that_of_schemas(wheel: Path):
    assert wheel.name.startswith(f"tillroll-{schemas.__version__}-")


def test_links_are_those_of_the_repository_that_builds(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://example.org")
    monkeypatch.setenv("GITHUB_REPOSITORY", "somebody/fork")
    wheel = build(source, tmp_path)
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    assert [line for line in lines if line.startswith("Project-URL: ")] == [
        "Project-URL: Source, https://example.org/somebody/fork",
        "Project-URL: Documentation, https://example.org/somebody/fork/tree/HEAD/docs",
        "Project-URL: Issues, https://example.org/somebody/fork/issues",
        "Project-URL: Changelog, https://example.org/somebody/fork/blob/HEAD/CHANGELOG.md",
    ]


def need_library_of(package: str) -> None:
    library = NEEDS.get(package)
    if library and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed in this environment")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_imports_from_the_wheel(package: str, python: Path, source: Path):
    need_library_of(package)
    names = sorted(
        ".".join(Path(name).with_suffix("").parts)
        for name in python_files(source)
        if name.startswith(f"{package}/")
    )
    code = (
        f"import importlib, pathlib, sys\nfor name in {names!r}:\n"
        "    module = importlib.import_module(name)\n"
        "    assert pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__\n"
    )
    run(python, "-c", code, cwd=python.parent)


@pytest.mark.parametrize("module", ["beam_jobs.build", "pipeline.train"])
def test_commands_run_from_the_wheel(module: str, python: Path):
    need_library_of(module.split(".")[0])
    shown = run(python, "-m", module, "--help", cwd=python.parent)
    assert shown.startswith(f"usage: python -m {module}")
