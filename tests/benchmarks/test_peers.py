"""The comparison with other input pipelines: its arithmetic, and a small run of some."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("psutil")
pytest.importorskip("tensorflow")

import tensorflow as tf

from benchmarks.harness import contenders
from benchmarks.harness.timing import Result
from benchmarks.peers.__main__ import main
from benchmarks.peers.comparison import comparison_rows, fastest, markdown, missing_lines, versions
from benchmarks.peers.output import Output
from benchmarks.peers.readiness import Readiness
from benchmarks.peers.reference import Reference, expected
from benchmarks.peers.registry import PEERS
from benchmarks.peers.stored import StoredImage, dealt, stored_images
from tests.support.dataset_factory import HEIGHT, LAYOUTS, WIDTH, write_dataset

pytestmark = pytest.mark.usefixtures("in_this_process")

IMPORTABLE = ("tillroll", "tf_data_tfrecord", "tf_data_files")


def result(images_per_s: float) -> Result:
    return Result(
        images_per_s=images_per_s,
        lowest=images_per_s - 1,
        highest=images_per_s + 1,
        first_batch_s=1.0,
        cpu_ms_per_image=2.0,
        peak_mb=300.0,
    )


def test_ratios_are_to_one_peer_and_the_fastest_comes_first():
    speeds = {
        ("dali", 1): 300.0,
        ("dali", 2): 500.0,
        ("dali", 4): 400.0,
        ("tillroll", 1): 1500.0,
        ("tf_data_tfrecord", 1): 1000.0,
    }
    rows = comparison_rows(
        fastest({name: result(speed) for name, speed in speeds.items()}),
        {name: Readiness(difference=float(len(name))) for name, _ in speeds},
        against="tf_data_tfrecord",
    )
    shown = ("reader", "workers", "ratio", "levels off")
    assert [tuple(row[name] for name in shown) for row in rows] == [
        ("tillroll", "its own", 1.5, 8.0),
        ("tf.data, TFRecord, as in its guide", "its own", 1.0, 16.0),
        ("DALI, CPU", 2, 0.5, 4.0),
    ]


def test_a_section_of_documentation():
    text = markdown(
        [{"reader": "a", "images/s": 1234.5, "ratio": 1.0}, {"reader": "b", "images/s": 7.25}],
        ["not measured: c"],
        about="2 receipts.",
        command=["python", "-m", "benchmarks.peers", "my data"],
        machine={"processor": "EPYC", "date": "2026-11-21"},
        packages={"tillroll": "0.1.0"},
    )
    assert text.splitlines() == [
        "2 receipts.",
        "",
        "```",
        "python -m benchmarks.peers 'my data'",
        "```",
        "",
        "| reader | images/s | ratio |",
        "|---|---:|---:|",
        "| a | 1,234 | 1 |",
        "| b | 7.25 |",
        "",
        "- not measured: c",
        "",
        "Machine: EPYC, 2026-11-21.",
        "Versions: tillroll 0.1.0.",
    ]


def test_every_peer_is_a_module_with_a_way_to_get_it():
    folder = Path(contenders.__file__).parents[1] / "peers"
    for name, peer in PEERS.items():
        assert {"def prepare(", "def batches("} <= {
            line[: line.index("(") + 1]
            for line in (folder / f"{name}.py").read_text().splitlines()
            if line.startswith("def ")
        }
        assert peer.title
        assert peer.packages
        assert "install" in peer.install or peer.install.startswith("make ")
    assert set(versions(["tillroll"])) <= {"tillroll", "tensorflow"}
    assert "tensorflow" in versions(["tillroll", "ffcv"])


@pytest.mark.parametrize("size", [(20, 30), (60, 40), (90, 128)], ids=str)
def test_the_reference_scales_as_everybody_does(size: tuple[int, int]):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 40, 3), np.uint8)
    stored = StoredImage(encoded=pixels.tobytes(), height=60, width=40, channels=3, label=0)
    output = Output(height=size[0], width=size[1], fit="stretch")
    found = expected(stored, "raw", output)
    np.testing.assert_allclose(found, tf.image.resize(pixels, size), atol=1e-2)


def test_the_reference_pads_with_white():
    pixels = np.full((60, 40, 3), 7, np.uint8)
    stored = StoredImage(encoded=pixels.tobytes(), height=60, width=40, channels=3, label=0)
    found = expected(stored, "raw", Output(height=30, width=31))
    assert (found[:, 5:25] == 7).all()
    assert (found[:, :5] == 255).all()
    assert (found[:, 25:] == 255).all()


def test_less_work_shows(directory: Path):
    output = Output(batch_size=2, height=32, width=48)
    reference = Reference.of(str(directory), output)
    assert len(reference.samples) == sum(LAYOUTS.values())
    images = list(stored_images(str(directory)))[5:7]
    batch = np.stack([expected(each, "jpeg", output) for each in images]) / np.float32(255)
    assert reference.difference(batch) < 1e-4
    assert reference.difference(np.zeros_like(batch)) > 100
    assert reference.difference(np.roll(batch, 4, axis=1)) > 5
    for wrong in (batch[:1], batch.astype(np.float64)):
        with pytest.raises(ValueError, match=r"float32 \[2, 32, 48, 3\] expected"):
            reference.difference(wrong)


def test_shards_hold_each_image_once(directory: Path):
    shards = dealt(str(directory))
    assert [len(shard) for shard in shards] == [4] * 8
    together = [each.encoded for shard in shards for each in shard]
    assert sorted(together) == sorted(each.encoded for each in stored_images(str(directory)))


SMALL = ("--global-batch-size=8", "--rounds=1", "--batches=2", "--warmup=0")


def test_a_comparison(
    directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "benchmarks.peers.grain", None)
    names = ("figures.json", "plot.png", "text.md", "work")
    figures, plot, text, work = (tmp_path / name for name in names)
    arguments = [str(directory), *SMALL, "--size", "30", "48", "--work-dir", str(work)]
    files = ["--json", str(figures), "--plot", str(plot), "--markdown", str(text)]
    assert main([*arguments, *files, "--peers", "grain", *IMPORTABLE]) == 0
    written = json.loads(figures.read_text())
    rows = {row["reader"]: row for row in written["results"]}
    assert set(rows) == {PEERS[name].title for name in IMPORTABLE}
    assert rows[PEERS["tf_data_tfrecord"].title]["ratio"] == 1
    for row in rows.values():
        assert row["images/s"] > 0
        assert row["levels off"] < 1
    [missing] = written["missing"]
    assert missing.startswith("not measured: Grain, ArrayRecord, OpenCV (grain): import of ")
    assert missing.endswith("; to have it: make .venv-peers/ready")
    assert "tensorflow" in written["versions"]
    shown = capsys.readouterr().out
    for told in (missing, "32 receipts (jpeg) to batches of 8 × 30 × 48 × 3 float32"):
        assert told in shown
        assert told in text.read_text()
    assert plot.stat().st_size > 5000

    before = {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    other = ["--peers", "tf_data_files", "--dtype", "uint8", "--channels", "1"]
    assert main([*arguments, *other, "--json", str(figures)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    [row] = json.loads(figures.read_text())["results"]
    assert row["levels off"] < 1
    assert row["ratio"] == 1


def test_raw_pixels(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = write_dataset(tmp_path / "receipts", raw=True)
    arguments = [str(directory), *SMALL, "--size", str(HEIGHT), str(WIDTH)]
    assert main([*arguments, "--peers", *IMPORTABLE, "--json", str(tmp_path / "figures")]) == 0
    written = json.loads((tmp_path / "figures").read_text())
    assert [row["levels off"] < 0.01 for row in written["results"]] == [True, True]
    assert written["missing"] == [
        "not measured: tf.data, image files, as in its guide (tf_data_files): takes no part in "
        "comparisons of raw storage"
    ]
    with pytest.raises(SystemExit, match="2"):
        main([str(directory), *SMALL])
    sentence = "pixels are stored as [60, 40, 3], which all are to read as they are: --size 60 40"
    assert sentence in capsys.readouterr().err


def test_nobody_to_compare(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "benchmarks.peers.ceiling", None)
    assert main([str(directory), *SMALL, "--peers", "ceiling", "ffcv", "--channels", "1"]) == 1
    assert [line.partition(": ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "not measured",
        "not measured",
    ]


def test_missing_peers_are_named():
    readiness = {
        "dali": Readiness(difference=0.5),
        "ffcv": Readiness(missing="No module named 'ffcv'", install="compile it"),
        "grain": Readiness(missing="takes no part"),
    }
    assert missing_lines(readiness) == [
        "not measured: FFCV (ffcv): No module named 'ffcv'; to have it: compile it",
        "not measured: Grain, ArrayRecord, OpenCV (grain): takes no part",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--peers", "torch"], "invalid choice: 'torch'"),
        (["--batches=0"], "batch_size and batches must be at least 1"),
        (["--rounds=0"], "--rounds and --workers must be at least 1"),
        (["--workers", "2", "0"], "--rounds and --workers must be at least 1"),
        (["--size", "0", "9"], "height must be at least 1, got 0"),
        ([], "No such file or directory: 'nowhere/COMPLETED'"),
    ],
)
def test_nonsense(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["nowhere", *arguments])
    assert sentence in capsys.readouterr().err
