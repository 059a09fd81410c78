"""From photos without layouts to an embedding that is learned from them, and to its layouts."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

pytest.importorskip("apache_beam")
pytest.importorskip("scipy")
pytest.importorskip("tensorflow")

from beam_jobs.verify import verify
from pipeline.export import main as export_main
from pipeline.train import main as train_main
from tests.support.dataset_files import manifest_of, records_of
from tests.support.processes import processes, run_python, wait_until

TASK = (
    "--task=pipeline.tasks.layout_embedding:LayoutEmbedding",
    *("--model.size=64", "--model.filters=8", "--model.units=16"),
    *("--quiet", "--learning-rate=0.003"),
)
OF_EACH = 12
STEPS = ("--steps=4", "--steps-per-call=1", "--global-batch-size=8", "--evaluation-split=train")
CLUSTERS = {
    "two replicas": {"worker": [2]},
    "two workers": {"worker": [1, 1]},
    "parameter server": {"chief": [1], "worker": [1], "ps": [1]},
}


def draw(design: str, number: int) -> Image.Image:
    """A receipt of a design, with text of its own below the top."""
    rng = np.random.default_rng(number)
    image = Image.fromarray(rng.integers(225, 256, (160, 80, 1), np.uint8).repeat(3, axis=2))
    pen = ImageDraw.Draw(image)
    x, y = (int(n) for n in rng.integers(4, 12, 2))
    if design == "disc":
        pen.ellipse((x + 10, y, x + 50, y + 40), fill=(10, 10, 10))
    elif design == "bars":
        for left in range(x, x + 56, 8):
            pen.rectangle((left, y, left + 3, y + 40), fill=(10, 10, 10))
    else:
        for line in range(5):
            pen.rectangle((x, y + 9 * line, x + 56, y + 9 * line + 2), fill=(10, 10, 10))
    for line in range(8):
        pen.rectangle(
            (6, 74 + 10 * line, 12 + int(rng.integers(60)), 79 + 10 * line), fill=(60,) * 3
        )
    return image


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos") / "photos"
    folder.mkdir()
    for kind, design in enumerate(("disc", "bars", "lines")):
        for number in range(OF_EACH):
            draw(design, OF_EACH * kind + number).save(folder / f"{design}-{number}.jpg")
    return folder


@pytest.fixture(scope="module")
def unlabeled(photos: Path, build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unlabeled") / "data"
    assert build(photos, out, "--shards=2", "--layout-from=none") == 0
    return out


def designs(directory: Path) -> Mapping[str, set[str]]:
    """The designs that each layout has."""
    found: dict[str, set[str]] = {}
    for split in manifest_of(directory).splits:
        for shard in records_of(directory, split):
            for record in shard:
                design = record["image/source_id"].partition("-")[0]
                found.setdefault(record["receipt/layout"], set()).add(design)
    return found


def losses(run_dir: Path) -> list[float]:
    lines = map(json.loads, (run_dir / "log.jsonl").read_text().splitlines())
    found = [line["loss"] for line in lines if "loss" in line]
    assert len(found) == 4
    return found


def evaluations(run_dir: Path) -> list[dict]:
    lines = map(json.loads, (run_dir / "log.jsonl").read_text().splitlines())
    return [line for line in lines if any("nearest" in name for name in line)]


def test_photos_train_the_model_that_finds_their_layouts(
    photos: Path, unlabeled: Path, tmp_path: Path
):
    run_dir, model, out = (tmp_path / name for name in ("run", "model", "found"))
    arguments = (str(unlabeled), f"--run-dir={run_dir}", *TASK, "--global-batch-size=32")
    assert train_main([*arguments, "--steps=60", "--evaluation-split=train"]) == 0
    assert evaluations(run_dir)
    assert (run_dir / "samples.png").exists()
    assert export_main([str(run_dir), f"--output={model}"]) == 0
    run_python(
        *("-m", "beam_jobs.build", f"--input={photos}", f"--output={out}", "--shards=2"),
        *(f"--layout-from=model={model}", "--layout-distance=0.1", "--workers=1", "--quiet"),
    )
    found = designs(out)
    assert 3 <= len(found) < 2 * OF_EACH
    assert all(len(each) == 1 for each in found.values()), found
    assert list(verify(str(out), workers=1)) == []


@pytest.fixture(scope="module")
def alone(unlabeled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process with one device."""
    run_dir = tmp_path_factory.mktemp("alone") / "run"
    assert train_main([str(unlabeled), f"--run-dir={run_dir}", *TASK, *STEPS]) == 0
    return run_dir


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_views_are_compared_with_those_of_all_replicas(
    alone: Path, unlabeled: Path, tmp_path: Path, cluster: str
):
    run_dir = tmp_path / "run"
    command = [str(unlabeled), f"--run-dir={run_dir}", *TASK, *STEPS]
    jobs = {
        kind: [["tests.support.train_worker", str(devices), *command] for devices in numbers]
        for kind, numbers in CLUSTERS[cluster].items()
    }
    with processes(tmp_path / "processes", jobs) as started:
        wait_until(lambda: all(each.has_ended() for each in started), started)
    np.testing.assert_allclose(losses(run_dir), losses(alone), rtol=1e-3)
    [expected], [found] = evaluations(alone), evaluations(run_dir)
    for name, value in expected.items():
        if "loss" in name or "nearest" in name:
            assert found[name] == pytest.approx(value, rel=1e-2), name
