"""Strategies by name: which one is made, from what, and what is said where it can't be."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.distribution.cluster import Cluster
from pipeline.distribution.strategies import (
    STRATEGIES,
    is_chief,
    make_strategy,
    parameter_server_cluster,
)
from pipeline.records.info import DatasetInfo, load_info
from pipeline.train import main
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from tests.support.tiny_task import TinyTask

pytestmark = pytest.mark.slow

PS = {"chief": ["a:1"], "worker": ["a:2", "a:3"], "ps": ["a:4"]}


@pytest.fixture(scope="module")
def info(directory: Path) -> DatasetInfo:
    return load_info(directory)


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
        ("multi_worker", "{", "TF_CONFIG is not JSON"),
        ("auto", "{", "TF_CONFIG is not JSON"),
        ("auto", '{"cluster": {"worker": ["a:1"]}}', "TF_CONFIG lacks something"),
        ("auto", '{"cluster": ["a:1"], "task": {}}', "TF_CONFIG lacks something"),
        (
            "auto",
            tf_config(PS, "worker", 2),
            "task worker 2 of a cluster of 1 chief, 2 worker, 1 ps: give each process a task",
        ),
        ("auto", tf_config(PS, "evaluator"), "task evaluator 0 of a cluster of 1 chief"),
        (
            "auto",
            tf_config({"worker": "127.0.0.1:24001"}),
            "TF_CONFIG, 'worker': '127.0.0.1:24001' is no list. Its form is",
        ),
        (
            "auto",
            tf_config({"worker": ["127.0.0.1", "b:1"]}),
            "TF_CONFIG, 'worker': '127.0.0.1' is no HOST:PORT, such as 10.0.0.7:5050. Its form",
        ),
        (
            "auto",
            tf_config({"worker": ["a:1", "b:1", "a:1"]}),
            "TF_CONFIG has the address a:1 2 times: give each task an address of its own",
        ),
        ("auto", tf_config({**PS, "ps": ["a:2"]}, "ps"), "TF_CONFIG has the address a:2 2 times"),
        # A cluster of the other kind.
        (
            "parameter_server",
            tf_config({"chief": ["a:1"], "worker": ["a:2"]}),
            "can't use the cluster in TF_CONFIG, 1 chief, 1 worker: it needs 1 chief, 1 or more "
            "workers and 1 or more ps. Name these, or choose another strategy",
        ),
        ("auto", tf_config({"worker": ["a:1"], "ps": ["a:2"]}), "TF_CONFIG, 1 worker, 1 ps: it"),
        ("auto", tf_config({**PS, "chief": ["a:1", "a:5"]}), "TF_CONFIG, 2 chief, 2 worker"),
        ("auto", tf_config({**PS, "evaluator": ["a:5"]}), "2 worker, 1 ps, 1 evaluator: it needs"),
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
    assert "it needs 1 chief, 1 or more workers and 1 or more ps" in capsys.readouterr().err


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
def test_tpus_are_found_connected_initialized_and_used_in_this_order(
    name: str, tpu_name: str | None, found: str, monkeypatch: pytest.MonkeyPatch
):
    """Calls that only a TPU can answer are replaced; they are those of TensorFlow's guide."""
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
