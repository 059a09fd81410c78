"""Strategies by name: which one is made, from what, and what is said where it can't be."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.distribution import strategies
from pipeline.distribution.cluster import Cluster
from pipeline.distribution.strategies import (
    STRATEGIES,
    is_chief,
    keep_host_memory,
    make_strategy,
    parameter_server_cluster,
)
from pipeline.records.info import DatasetInfo, load_info
from pipeline.train import main
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from tests.support.dataset_factory import write_dataset
from tests.support.tiny_task import TinyTask

ALLOCATOR = (
    *("TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB", "LD_PRELOAD"),
    *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"),
)
TOUCHED_ANEW = """
import contextlib, ctypes, resource, sys

PR_SET_THP_DISABLE = 41  # huge pages would be few faults
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
exec(sys.argv[1])
import tensorflow as tf

exec(sys.argv[2])
copies = [step() for _ in range(4)][:1]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    copies[0] = step()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults * resource.getpagesize() / (8 * size))
"""
IMAGES = """
size = 256 << 20
batch = tf.zeros([size], tf.uint8)
step = lambda: batch + 1
"""
RECORDS = """
size = 32 << 20
batch = tf.constant([bytes(size // 32)] * 32)
step = lambda: tf.strings.join([batch, "."])
"""
MADE_BY_NAME = (
    "from pipeline.distribution.strategies import make_strategy; make_strategy('default')"
)
# There is no such dataset, which is found out when there is a strategy.
IN_TRAINING = """
from pipeline.train import main

with contextlib.suppress(SystemExit):
    main(["no/such/dataset", "--run-dir", "no/such/run"])
"""

PS = {"chief": ["a:1"], "worker": ["a:2", "a:3"], "ps": ["a:4"]}


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> DatasetInfo:
    return load_info(write_dataset(tmp_path_factory.mktemp("names") / "receipts"))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TPU_NAME", raising=False)


def tf_config(cluster: Any, kind: str = "worker", index: int = 0) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("name", "config", "sentence"),
    [
        ("fastest", None, f"strategy 'fastest' is unknown: choose one of {', '.join(STRATEGIES)}"),
        (
            "multi_worker",
            None,
            "needs a cluster, and TF_CONFIG names none: set it for each process",
        ),
        ("parameter_server", None, "needs a cluster, and TF_CONFIG names none"),
        ("multi_worker", "{", "TF_CONFIG is no JSON"),
        ("auto", "{", "TF_CONFIG is no JSON"),
        ("auto", '{"cluster": {"worker": ["a:1"]}}', "TF_CONFIG lacks something"),
        ("auto", '{"cluster": ["a:1"], "task": {}}', "TF_CONFIG lacks something"),
        (
            "auto",
            tf_config(PS, "worker", 2),
            "task worker 2 of a cluster of 1 chief, 2 worker, 1 ps: each process needs a task",
        ),
        ("auto", tf_config(PS, "evaluator"), "task evaluator 0 of a cluster of 1 chief"),
        # A cluster of the other kind.
        (
            "parameter_server",
            tf_config({"chief": ["a:1"], "worker": ["a:2"]}),
            "can't use the cluster in TF_CONFIG, 1 chief, 1 worker: it takes 1 chief, 1 or more "
            "worker and 1 or more ps. Name these, or choose another strategy",
        ),
        ("auto", tf_config({"worker": ["a:1"], "ps": ["a:2"]}), "TF_CONFIG, 1 worker, 1 ps: it"),
        ("auto", tf_config({**PS, "chief": ["a:1", "a:5"]}), "TF_CONFIG, 2 chief, 2 worker"),
        ("auto", tf_config({**PS, "evaluator": ["a:5"]}), "2 worker, 1 ps, 1 evaluator: it takes"),
        ("multi_worker", tf_config(PS), "leave out 'ps', or choose 'parameter_server'"),
        ("auto", tf_config(PS, "ps"), "this process is ps 0 in TF_CONFIG, and only the chief has"),
        ("tpu", None, "no TPU can be reached as 'local': set the environment variable TPU_NAME"),
    ],
)
def test_errors(name: str, config: str | None, sentence: str, monkeypatch: pytest.MonkeyPatch):
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make_strategy(name)


def test_the_command_says_what_is_wrong_with_a_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": ["a:1"], "ps": ["a:2"]}, "ps"))
    with pytest.raises(SystemExit):
        main([str(tmp_path), f"--run-dir={tmp_path / 'run'}"])
    assert "it takes 1 chief, 1 or more worker and 1 or more ps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("auto", None, False),
        ("auto", tf_config(PS), True),
        ("parameter_server", tf_config(PS, "ps"), True),
        ("auto", tf_config({"worker": ["a:1", "a:2"]}), False),
        # Whoever asks for something else gets it, or an error that says why not.
        ("default", tf_config(PS), False),
    ],
)
def test_clusters_of_parameter_servers(
    name: str, config: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
):
    if config is not None:
        monkeypatch.setenv("TF_CONFIG", config)
    assert bool(parameter_server_cluster(name)) is expected
    assert bool(Cluster.from_environment()) is (config is not None)


def touched_anew(
    environment: Mapping[str, str], begin: str = MADE_BY_NAME, batch: str = IMAGES
) -> float:
    """Share of the memory of a batch that the kernel has to hand out again."""
    inherited = {name: value for name, value in os.environ.items() if name not in ALLOCATOR}
    done = subprocess.run(
        [sys.executable, "-c", TOUCHED_ANEW, begin, batch],
        env={**inherited, **environment},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


# TensorFlow turns oneDNN on by itself on processors with AVX512_VNNI. Its allocator keeps memory
# of images whatever is asked for, so that nothing would be tested unless it is off.
NO_ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "0"}


@pytest.mark.parametrize("begin", [MADE_BY_NAME, IN_TRAINING])
@pytest.mark.parametrize("batch", [IMAGES, RECORDS])
def test_memory_of_a_batch_is_kept_for_the_next(begin: str, batch: str):
    assert touched_anew(NO_ONEDNN, begin, batch) < 0.1


@pytest.mark.parametrize("batch", [IMAGES, RECORDS])
def test_memory_is_kept_with_onednn(batch: str):
    assert touched_anew({"TF_ENABLE_ONEDNN_OPTS": "1"}, batch=batch) < 0.1


@pytest.mark.parametrize(
    ("chosen", "batch"),
    [
        pytest.param({"TF_CPU_ALLOCATOR_USE_BFC": "false"}, IMAGES, id="C library"),
        pytest.param({"MALLOC_TRIM_THRESHOLD_": "0"}, RECORDS, id="limit of the C library"),
    ],
)
def test_an_allocator_that_was_chosen_stays(chosen: dict[str, str], batch: str):
    assert touched_anew(NO_ONEDNN | chosen, batch=batch) > 0.9


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
    monkeypatch.setattr(strategies, "_CONTAINER_LIMITS", paths)
    monkeypatch.setattr(strategies, "_tensorflow_has_run", lambda: False)
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
    program = (
        "import tensorflow as tf\n"
        "from pipeline.distribution.strategies import _tensorflow_has_run\n"
        "before = tf.config.threading.get_inter_op_parallelism_threads()\n"
        "print(_tensorflow_has_run(), _tensorflow_has_run())\n"
        "print(before == tf.config.threading.get_inter_op_parallelism_threads())\n"
        "tf.zeros([1])\n"
        "print(_tensorflow_has_run())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False", "True", "True"]


def test_one_device():
    strategy = make_strategy("one_device")
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    (device,) = strategy.extended.worker_devices
    assert device.endswith(f"{kind}:0")
    assert is_chief(strategy)


@pytest.mark.parametrize(
    ("name", "tpu_name", "found"),
    [
        ("tpu", None, "local"),
        ("tpu", "grpc://10.0.0.2:8470", "grpc://10.0.0.2:8470"),
        ("auto", "my-tpu", "my-tpu"),
    ],
)
def test_tpus_are_found_connected_initialised_and_used_in_this_order(
    name: str, tpu_name: str | None, found: str, monkeypatch: pytest.MonkeyPatch
):
    """What only a TPU can do is replaced; the calls are those that TensorFlow's guide makes."""
    if tpu_name is not None:
        monkeypatch.setenv("TPU_NAME", tpu_name)
    calls: list[tuple[str, Any]] = []

    def replace(module: Any, attribute: str) -> None:
        def call(argument: Any) -> Any:
            calls.append((attribute, argument))
            return f"{attribute}({argument})"

        monkeypatch.setattr(module, attribute, call)

    replace(tf.distribute.cluster_resolver, "TPUClusterResolver")
    replace(tf.config, "experimental_connect_to_cluster")
    replace(tf.tpu.experimental, "initialize_tpu_system")
    replace(tf.distribute, "TPUStrategy")
    resolver = f"TPUClusterResolver({found})"
    assert make_strategy(name) == f"TPUStrategy({resolver})"
    assert calls == [
        ("TPUClusterResolver", found),
        ("experimental_connect_to_cluster", resolver),
        ("initialize_tpu_system", resolver),
        ("TPUStrategy", resolver),
    ]


def test_text_is_refused_on_a_tpu(info: DatasetInfo, monkeypatch: pytest.MonkeyPatch):
    class Replacement:
        num_replicas_in_sync = 1

    monkeypatch.setattr(tf.distribute, "TPUStrategy", Replacement)

    class WithText(TinyTask):
        def inputs(self, info: DatasetInfo) -> InputConfig:
            features = ("image", "id", "boxes", "text", "group", "layout_id", "weight", "seed")
            return dataclasses.replace(super().inputs(info), features=features)

    with pytest.raises(ValueError, match="TPUs take no text: leave id, text, group out"):
        Trainer(WithText(), Replacement(), info, TrainOptions(global_batch_size=8))
