"""Plugin of pytest that spares optimizing graphs: `pytest -p tests.support.quick_graphs`.

Tests make thousands of small graphs and run each a few times, so that TensorFlow's optimizers take
longer than the graphs that they make faster. `make test-halves` runs without this plugin, so that
tests also run as TensorFlow is by default; so do the programs that tests start, but for oneDNN.
"""

import importlib
import os
import sys

import pytest

# Both are read once, by this process and those that it starts. oneDNN, on by default where the
# processor has instructions for it, looks through all kernels for each node of each graph.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules are imported by now, TensorFlow among them if tests need it."""
    importlib.import_module("tests.support.frozen")
    if tensorflow := sys.modules.get("tensorflow"):
        tensorflow.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
