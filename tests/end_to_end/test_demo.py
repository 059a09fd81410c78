"""The demo's training and pictures, in a process of its own: it sets up logical devices."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("tensorflow")
pytest.importorskip("matplotlib")

from tests.support.dataset_factory import write_dataset

ROOT = Path(__file__).parents[2]


def test_trains_under_a_strategy_and_draws(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pipeline.demo", str(directory)),
            *("--out", str(tmp_path / "out"), "--steps", "12"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    losses = [float(each) for each in re.findall(r"step +\d+  loss (\S+)", done.stdout)]
    assert "training on 2 replicas, 32 receipts a step" in done.stdout
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    for name in ("layouts.png", "shards.png", "batch.png"):
        with Image.open(tmp_path / "out" / name) as picture:
            assert picture.size > (600, 150)
            assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 10
