"""Who may import whom, and that importing touches nothing."""

import importlib.util
import os

import pytest

from tests.support.processes import ROOT, run_python

pytestmark = pytest.mark.slow

PACKAGES = {
    "schemas": ("tensorflow", "keras", "apache_beam", "beam_jobs", "pipeline", "benchmarks"),
    "beam_jobs": ("tensorflow", "keras", "pipeline", "benchmarks"),
    "pipeline": ("apache_beam", "beam_jobs", "benchmarks"),
}
NEEDS = {"schemas": "numpy", "beam_jobs": "apache_beam", "pipeline": "tensorflow"}


def modules(package: str) -> list[str]:
    found = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name not in ("__main__.py", "local_worker.py")
    ]
    assert found
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_they_may(package: str):
    if importlib.util.find_spec(NEEDS[package]) is None:
        pytest.skip(f"{NEEDS[package]} is not installed in this environment")
    code = (
        "import sys, importlib\n"
        f"for name in {modules(package)!r}: importlib.import_module(name)\n"
        f"print(*[name for name in {PACKAGES[package]!r} if name in sys.modules])"
    )
    assert run_python("-c", code).stdout.split() == []


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
    code = (
        f"import sys, {module}\n"
        "print(*[name for name in ('apache_beam', 'tensorflow') if name in sys.modules])"
    )
    assert run_python("-c", code).stdout.split() == []


def test_importing_the_runtime_leaves_settings_of_the_process_alone():
    """A notebook's backend of matplotlib, its logging and its warnings are the user's."""
    for library in ("tensorflow", "matplotlib"):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed in this environment")
    code = (
        "import importlib, logging, warnings\n"
        "import keras, matplotlib, tensorflow, tensorflow_metadata\n"  # they may change settings
        "root = logging.getLogger()\n"
        "def settings():\n"
        "    logs = (root.level, root.disabled, list(root.handlers), list(root.filters))\n"
        "    return matplotlib.get_backend(), logs, list(warnings.filters)\n"
        "before = settings()\n"
        f"for name in {modules('pipeline')!r}:\n"
        "    importlib.import_module(name)\n"
        "    now = settings()\n"
        "    if now != before: print(name, before, now)\n"
        "    before = now\n"
    )
    assert run_python("-c", code, environment={**os.environ, "MPLBACKEND": "svg"}).stdout == ""


@pytest.mark.parametrize("package", [*PACKAGES, "benchmarks"])
def test_importing_changes_no_environment_variable(package: str):
    """TF_CPP_MIN_LOG_LEVEL, say: what TensorFlow logs in a notebook is its user's choice."""
    code = (
        "import contextlib, importlib, os\n"
        "for name in ('apache_beam', 'tensorflow', 'keras'):\n"  # TensorFlow sets variables itself
        "    with contextlib.suppress(ImportError): importlib.import_module(name)\n"
        "before, imported = dict(os.environ), 0\n"
        f"for name in {modules(package)!r}:\n"
        # Not every environment has the libraries of every module.
        "    with contextlib.suppress(ImportError):\n"
        "        importlib.import_module(name)\n"
        "        imported += 1\n"
        "    changed = dict(os.environ).items() ^ before.items()\n"
        "    if changed: print(name, changed)\n"
        "    before = dict(os.environ)\n"
        "assert imported > 5, imported\n"
    )
    environment = {name: text for name, text in os.environ.items() if "LOG_LEVEL" not in name}
    assert run_python("-c", code, environment=environment).stdout == ""


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_touches_no_network_and_writes_nothing(package: str):
    if importlib.util.find_spec(NEEDS[package]) is None:
        pytest.skip(f"{NEEDS[package]} is not installed in this environment")
    code = (
        "import sys, importlib\n"
        f"import {NEEDS[package]}\n"  # what the library itself does at import is not ours
        + ("import keras\n" if package == "pipeline" else "")
        + "touched = []\n"
        "def hook(event, arguments):\n"
        "    writes = event == 'open' and set(str(arguments[1] or '')) & set('wax+')\n"
        "    if event == 'socket.connect' or (writes and '.pyc' not in str(arguments[0])):\n"
        "        touched.append((event, str(arguments[0])))\n"
        "sys.addaudithook(hook)\n"
        f"for name in {modules(package)!r}:\n"
        "    importlib.import_module(name)\n"
        "print(*touched)"
    )
    assert run_python("-c", code).stdout.strip() == ""


def test_importing_the_build_changes_no_filter_of_logs_or_warnings():
    pytest.importorskip("apache_beam")
    code = (
        "import importlib, logging, sys, warnings\n"
        f"names = {modules('beam_jobs')!r}\n"
        "for name in names: importlib.import_module(name)\n"
        "filters = lambda: (logging.getLogger().filters[:], warnings.filters[:])\n"
        "for name in names: del sys.modules[name]\n"  # what libraries do at import is done
        "logging.getLogger().filters.clear()\n"
        "warnings.resetwarnings()\n"
        "before = filters()\n"
        "for name in names: importlib.import_module(name)\n"
        "assert filters() == before, filters()\n"
    )
    run_python("-c", code)


@pytest.mark.parametrize("module", ["build", "verify"])
def test_the_commands_hide_what_libraries_say_at_import(module: str):
    pytest.importorskip("apache_beam")
    assert run_python("-m", f"beam_jobs.{module}", "--help").stderr == ""
