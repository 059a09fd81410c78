"""docs/kubernetes.yaml: what its workers run, with the environment that Kubernetes gives them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("yaml")

import yaml

from pipeline.distribution.stop_request import STOPPED
from pipeline.distribution.strategies import STRATEGIES
from pipeline.train_arguments import make_parser

ROOT = Path(__file__).parents[2]
INSTEAD = """import json, os, sys
print(json.dumps([json.loads(os.environ["TF_CONFIG"]), sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    text = (ROOT / "docs" / "kubernetes.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def container(objects: dict[str, Any]) -> dict[str, Any]:
    (found,) = objects["Job"]["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize("index", [0, 3])
def test_a_worker_knows_the_cluster_and_its_place(
    objects: dict[str, Any], tmp_path: Path, index: int
):
    """The command is run as it stands; a module that tells what it was given takes its place."""
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "train.py").write_text(INSTEAD)
    run = container(objects)
    assert run["command"] == ["python", "-c"]
    own = {each["name"]: each["value"] for each in run["env"]}
    done = subprocess.run(
        [sys.executable, "-c", *run["args"]],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": str(index), **own},
        capture_output=True,
        text=True,
        check=True,
    )
    config, arguments = json.loads(done.stdout)
    service, port = objects["Service"], run["ports"][0]["containerPort"]
    job, name = objects["Job"]["metadata"]["name"], service["metadata"]["name"]
    assert config == {
        # The names that Kubernetes gives to the pods of an indexed job behind a headless service.
        "cluster": {"worker": [f"{job}-{number}.{name}:{port}" for number in range(4)]},
        "task": {"type": "worker", "index": index},
    }
    args = make_parser().parse_args(arguments)
    assert args.strategy in STRATEGIES
    assert args.global_batch_size % 4 == 0


def test_parts_fit_each_other(objects: dict[str, Any]):
    job, service = objects["Job"]["spec"], objects["Service"]["spec"]
    pod = job["template"]
    assert job["completionMode"] == "Indexed"
    assert job["completions"] == job["parallelism"] == int(container(objects)["env"][0]["value"])
    assert service["clusterIP"] == "None"
    assert pod["spec"]["subdomain"] == objects["Service"]["metadata"]["name"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["restartPolicy"] == "Never"  # podFailurePolicy takes no other
    first = job["podFailurePolicy"]["rules"][0]
    assert (first["action"], first["onExitCodes"]["values"]) == ("Ignore", [STOPPED])
    claims = {each["name"]: each["persistentVolumeClaim"] for each in pod["spec"]["volumes"]}
    assert claims["runs"]["claimName"] == objects["PersistentVolumeClaim"]["metadata"]["name"]
    mounted = {each["name"]: each["mountPath"] for each in container(objects)["volumeMounts"]}
    arguments = container(objects)["args"]
    assert arguments[1].startswith(mounted["data"])
    assert arguments[2].startswith(f"--run-dir={mounted['runs']}")


def test_the_pods_of_a_search_work_on_one_study():
    pytest.importorskip("optuna")
    from pipeline.search import make_parser as make_search_parser
    from pipeline.searching.space import parse_space
    from pipeline.train_arguments import option_types

    text = (ROOT / "docs" / "kubernetes_search.yaml").read_text()
    objects = {each["kind"]: each for each in yaml.safe_load_all(text)}
    run = container(objects)
    assert run["command"] == ["python", "-m", "pipeline.search"]
    args, others = make_search_parser().parse_known_args(run["args"])
    assert args.trials > objects["Job"]["spec"]["parallelism"]
    assert args.storage.startswith("postgresql+psycopg://")
    trained = make_parser().parse([*others, "--run-dir=trial"])
    assert len(parse_space(args.space, option_types(trained.task))) == 2
    mounts = [mount["mountPath"] for mount in run["volumeMounts"]]
    assert any(args.search_dir.startswith(path) for path in mounts)
    assert any(trained.data_dir.startswith(path) for path in mounts)
    codes = {
        rule["action"]: rule["onExitCodes"]["values"]
        for rule in objects["Job"]["spec"]["podFailurePolicy"]["rules"]
        if "onExitCodes" in rule
    }
    assert codes == {"Ignore": [STOPPED], "FailJob": [2]}
