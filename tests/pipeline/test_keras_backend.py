"""Settings of Keras that come from outside a program."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.keras_backend import check_backend
from tests.support.processes import ROOT


@pytest.mark.parametrize(
    ("variable", "settings", "refused"),
    [
        (None, None, None),
        ("", None, None),
        ("tensorflow", None, None),
        ("tensorflow", {"backend": "jax"}, None),  # the variable goes before the file
        ("jax", None, "the environment variable KERAS_BACKEND sets Keras' backend to 'jax'"),
        ("torch", {"backend": "tensorflow"}, "KERAS_BACKEND sets Keras' backend to 'torch'"),
        (None, {"backend": "jax"}, "keras.json sets Keras' backend to 'jax'"),
        (None, {"floatx": "float16"}, None),
        (None, ["jax"], None),
    ],
)
def test_the_backend_of_the_environment_and_of_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    settings: object,
    refused: str | None,
):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    if variable is not None:
        monkeypatch.setenv("KERAS_BACKEND", variable)
    if settings is not None:
        (tmp_path / "keras.json").write_text(json.dumps(settings))
    if refused is None:
        check_backend()
    else:
        with pytest.raises(ValueError, match=re.escape(refused)) as error:
            check_backend()
        assert str(error.value).endswith("set KERAS_BACKEND=tensorflow")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["pipeline.train", "pipeline.export"])
def test_a_command_ends_with_a_sentence_where_the_backend_is_not_installed(command: str):
    done = subprocess.run(
        [sys.executable, "-m", command, "data", "--run-dir=run"],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 2
    [sentence] = done.stderr.splitlines()
    assert sentence.startswith(f"{command}: error: the environment variable KERAS_BACKEND sets")
