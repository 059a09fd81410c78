"""Commands as tasks of a cluster."""

import json

import pytest

pytest.importorskip("psutil")

from benchmarks.harness.local_cluster import run_cluster

SHOW = "import os; print(os.environ['TF_CONFIG'])"
# The second task fails, and the first one would wait for it.
FAIL = """
import json, os, time

if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    os._exit(3)
time.sleep(600)
"""


def test_what_the_first_task_prints():
    task = json.loads(run_cluster(["-c", SHOW], {"worker": 2, "ps": 1}, name="a test"))
    assert task["task"] == {"type": "worker", "index": 0}
    assert {kind: len(set(each)) for kind, each in task["cluster"].items()} == {
        "worker": 2,
        "ps": 1,
    }


def test_a_command_alone():
    assert run_cluster(["-c", "import os; print('TF_CONFIG' in os.environ)"], {}, name="") == (
        "False\n"
    )


def test_a_task_that_fails_ends_them_all():
    with pytest.raises(SystemExit, match=r"^a process of a test ended with status 3$"):
        run_cluster(["-c", FAIL], {"worker": 2}, name="a test")
