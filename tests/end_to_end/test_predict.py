"""`python -m beam_jobs.predict`: each input has its predictions, or lies in the quarantine."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")

import orjson
import pyarrow.parquet as pq

from beam_jobs.models import model as boundary
from beam_jobs.predict import main
from beam_jobs.prediction.publish import read_predictions_manifest
from beam_jobs.verify import main as verify_main
from schemas.file_names import COMPLETED
from schemas.predictions import PredictionsManifest
from tests.support import fake_model
from tests.support.dataset_files import manifest_of
from tests.support.fake_model import (
    FAILS,
    FAILS_IN_A_BATCH,
    KILLED,
    LOADS,
    NOT_FINITE,
    NOT_TEXT,
)
from tests.support.processes import ROOT
from tests.support.receipts import contents, write_receipts, write_table

STRANGE = {
    "fails": FAILS,
    "alone": FAILS_IN_A_BATCH,
    "infinite": NOT_FINITE,
    "latin": NOT_TEXT,
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this process and those that it starts import a TensorFlow that stands in."""
    fake_model.put_in_place(monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_model.write_model(tmp_path_factory.mktemp("models") / "first")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table of 24 receipts: 19 as they should be, a file that is missing, and some strange ones."""
    folder = tmp_path_factory.mktemp("images")
    rows = []
    widths = {f"{number}": 40 + number for number in range(19)} | STRANGE
    for name, width in widths.items():
        Image.new("RGB", (width, 50), "white").save(folder / f"{name}.png")
        layout = {"layout": "aldi"} if width % 2 else {}
        rows.append({"id": name, "image": f"{name}.png", "boxes": "no boxes", **layout})
    rows.append({"id": "lost", "image": "lost.png"})
    return write_table(folder / "receipts.jsonl", rows)


def predict(model: Path, source: Path, output: Path, *options: str) -> int:
    workers = (
        () if any(o.startswith(("--workers", "--runner")) for o in options) else ("--workers=1",)
    )
    arguments = ["--input", str(source), "--output", str(output), "--quiet", *workers, *options]
    return main([str(model), *arguments])


def lines_of(output: Path) -> dict[str, dict]:
    paths = sorted(output.glob("predictions-*.jsonl"))
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    assert lines
    found = {line["id"]: line for line in lines}
    assert len(found) == len(lines)
    return found


def rejected(output: Path) -> dict[str, tuple[str, str]]:
    [listing] = output.glob("quarantine/rejected.jsonl-*")
    lines = map(json.loads, listing.read_text().splitlines())
    return {line["id"]: (line["reason"], line["message"]) for line in lines}


ANY_SHARE = "--max-bad-fraction=1"


@pytest.mark.usefixtures("fake")
def test_each_input_is_predicted_or_in_the_quarantine(
    model: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert predict(model, images, output, "--format=jsonl", "--batch-size=4", ANY_SHARE) == 0
    lines = lines_of(output)
    assert lines.keys() == {*map(str, range(19)), "alone"}
    for number in range(19):
        values = lines[str(number)]
        assert values["predictions"]["width"] == 40 + number
        assert values["predictions"]["text"] == f"{40 + number} pixels"
        assert values["predictions"]["file_bytes"] == "/9j/4A=="  # FF D8 FF E0: a JPEG file
        assert values["layout"] == ("aldi" if number % 2 else None)
        assert values.keys() == {"id", "layout", "predictions"}
    assert lines["alone"]["predictions"]["inverse"][1] == 1
    assert rejected(output) == {
        "fails": ("model_failed", "the model failed: Invalid JPEG data or crop window"),
        "infinite": ("not_finite", "the model gives a value of 'inverse' that is not finite"),
        "latin": (
            "model_failed",
            "the model gives a text of 'text' that is not UTF-8: export it under a name that ends "
            "in _bytes, if it is none",
        ),
        "lost": ("file_missing", f"{images.parent / 'lost.png'} does not exist"),
    }
    manifest = read_predictions_manifest(str(output))
    assert (manifest.inputs, manifest.predicted) == (24, 20)
    assert manifest.quarantined == {"model_failed": 2, "not_finite": 1, "file_missing": 1}
    assert not (output / "_staging").exists()
    assert set(contents(output)) == {*manifest.files, "manifest.json", COMPLETED}
    printed = capsys.readouterr().out.splitlines()
    assert printed[:4] == [
        f"{output} is complete",
        "  inputs       24",
        "  predicted    20",
        "  quarantined  4: model_failed 2, file_missing 1, not_finite 1",
    ]
    assert (
        printed[5]
        == "  values       file_bytes string, inverse float32 [2], text string, width int64"
    )


@pytest.mark.usefixtures("fake")
def test_parquet_holds_what_json_lines_hold(model: Path, images: Path, tmp_path: Path) -> None:
    options = (ANY_SHARE, "--files=3")
    assert predict(model, images, tmp_path / "json", "--format=jsonl", *options) == 0
    assert predict(model, images, tmp_path / "parquet", *options) == 0
    names = sorted(path.name for path in (tmp_path / "parquet").glob("predictions-*"))
    assert names == [f"predictions-0000{number}-of-00003.parquet" for number in range(3)]
    order = []
    for name in names:
        table = pq.read_table(tmp_path / "parquet" / name)
        types = {field.name: str(field.type) for field in table.schema.field("predictions").type}
        assert types == {
            "file_bytes": "binary",
            "inverse": "fixed_size_list<element: float>[2]",
            "text": "string",
            "width": "int64",
        }
        lines = (tmp_path / "json" / name).with_suffix(".jsonl").read_bytes().splitlines()
        for row, line in zip(table.to_pylist(), map(orjson.loads, lines), strict=True):
            assert row["predictions"].pop("file_bytes") == b"\xff\xd8\xff\xe0"
            del line["predictions"]["file_bytes"]
            inverse = row["predictions"].pop("inverse")
            assert inverse == pytest.approx(line["predictions"].pop("inverse"), abs=1e-9)
            assert row == line
            order.append(row["id"])
    assert len(order) == 20
    assert order != sorted(order)


@pytest.mark.usefixtures("fake")
def test_any_number_of_workers_gives_the_same_bytes(
    model: Path, images: Path, tmp_path: Path
) -> None:
    for name, options in {"one": ["--workers=1"], "two": ["--workers=2"]}.items():
        assert predict(model, images, tmp_path / name, ANY_SHARE, *options) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_loads_the_model_once(
    workers: int, model: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = tmp_path / "loads"
    monkeypatch.setenv(LOADS, str(loads))
    assert predict(model, images, tmp_path / "out", ANY_SHARE, f"--workers={workers}") == 0
    processes = loads.read_text().split()
    assert 1 <= len(processes) <= workers
    assert len(set(processes)) == len(processes)


@pytest.mark.usefixtures("fake")
def test_a_folder_needs_no_layouts(model: Path, tmp_path: Path) -> None:
    write_receipts(tmp_path / "in", {"a": 3})
    (tmp_path / "in" / "receipts.jsonl").unlink()
    (tmp_path / "in" / "images" / "a-2.jpg").rename(tmp_path / "in" / "top.jpg")
    assert predict(model, tmp_path / "in", tmp_path / "out", "--format=jsonl") == 0
    found = {name: line["layout"] for name, line in lines_of(tmp_path / "out").items()}
    assert found == {"images/a-0.jpg": "images", "images/a-1.jpg": "images", "top.jpg": None}


@pytest.mark.usefixtures("fake")
def test_records_of_a_dataset(dataset: Path, model: Path, tmp_path: Path) -> None:
    assert predict(model, dataset, tmp_path / "out", "--format=jsonl") == 0
    lines = lines_of(tmp_path / "out")
    manifest = manifest_of(dataset)
    assert len(lines) == manifest.counts.written
    splits = [line["split"] for line in lines.values()]
    assert {name: splits.count(name) for name in manifest.splits} == {
        name: split.records for name, split in manifest.splits.items()
    }
    assert all(line["layout"] == line["id"].partition("-")[0] for line in lines.values())
    assert all(line["predictions"]["width"] == 96 for line in lines.values())
    options = ("--format=jsonl", "--split=validation", "--version=1")
    assert predict(model, dataset, tmp_path / "part", *options) == 0
    part = lines_of(tmp_path / "part")
    assert part.keys() == {name for name, line in lines.items() if line["split"] == "validation"}


@pytest.mark.usefixtures("fake")
def test_damaged_records_are_rejected_unless_they_are_excluded(
    dataset: Path, model: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(dataset, tmp_path / "dataset"))
    shard = copy / manifest_of(copy).splits["train"].shards[0].name
    data = bytearray(shard.read_bytes())
    data[200] ^= 1
    shard.write_bytes(data)
    records = manifest_of(copy).counts.written
    assert predict(model, copy, tmp_path / "out", "--format=jsonl") == 0
    [(reason, message)] = rejected(tmp_path / "out").values()
    assert reason == "record_damaged"
    assert message.startswith(f"{shard}, byte 0: ")
    assert len(lines_of(tmp_path / "out")) == records - 1
    assert verify_main([str(copy), "--exclude", "--workers=1"]) == 0
    assert predict(model, copy, tmp_path / "out", "--format=jsonl", "--overwrite") == 0
    manifest = read_predictions_manifest(str(tmp_path / "out"))
    assert (manifest.inputs, manifest.predicted, manifest.excluded) == (records - 1, records - 1, 1)


def test_an_image_that_ends_its_worker_costs_only_itself(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_receipts(tmp_path / "in", {"a": 9})
    for name, value in fake_model.variables().items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "beam_jobs.predict", str(model), "--workers=1", "--quiet"]
    command += ["--format=jsonl", "--max-bad-fraction=0.2", "--input", str(table)]
    sound, output = tmp_path / "sound", tmp_path / "out"
    subprocess.run([*command, "--output", str(sound)], check=True, cwd=ROOT, capture_output=True)
    Image.new("RGB", (KILLED, 50)).save(tmp_path / "in" / "killer.png")
    with table.open("a") as file:
        file.write(json.dumps({"id": "killer", "image": "killer.png"}) + "\n")
    command += ["--output", str(output)]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        for _ in range(2)
    )
    assert first.returncode == -signal.SIGKILL
    assert second.returncode == 0, second.stderr
    assert rejected(output) == {
        "killer": (
            "killed_worker",
            "predicting ended 2 processes that did nothing else: signal SIGKILL, signal SIGKILL",
        )
    }
    assert {name: line["predictions"]["width"] for name, line in lines_of(output).items()} == {
        name: line["predictions"]["width"] for name, line in lines_of(sound).items()
    }


@pytest.mark.usefixtures("fake")
def test_too_many_rejections_publish_nothing(
    model: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(model, images, tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert error.startswith(
        "error: 4 of 24 inputs were rejected, more than --max-bad-fraction 0.05"
    )
    assert not (tmp_path / "out" / COMPLETED).exists()
    assert predict(model, images, tmp_path / "out", ANY_SHARE) == 0  # from what was staged


def refusal(
    capsys: pytest.CaptureFixture[str], model: Path, source: Path, output: Path, *options: str
) -> str:
    with pytest.raises(SystemExit) as exit_info:
        predict(model, source, output, *options)
    assert exit_info.value.code == 2
    return capsys.readouterr().err.splitlines()[-1].partition("error: ")[2]


@pytest.mark.usefixtures("fake")
def test_what_is_there_stays(
    dataset: Path, build: Callable[..., int], model: Path, images: Path, tmp_path: Path, capsys
) -> None:
    copy = Path(shutil.copytree(dataset, tmp_path / "dataset"))
    before = contents(copy)
    sentence = refusal(capsys, model, images, copy, "--overwrite")
    assert "which no build wrote: choose an empty --output" in sentence
    assert contents(copy) == before
    output = tmp_path / "out"
    assert predict(model, images, output, ANY_SHARE) == 0
    before = contents(output)
    capsys.readouterr()
    assert refusal(capsys, model, images, output, ANY_SHARE) == (
        f"{output} holds finished predictions: replace them with --overwrite, or choose another "
        "--output"
    )
    with pytest.raises(SystemExit):
        build(dataset, output, "--overwrite")
    assert contents(output) == before
    assert predict(model, images, output, ANY_SHARE, "--overwrite", "--format=jsonl") == 0
    assert not list(output.glob("*.parquet"))


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--signature=other"],
            "{model} has no signature 'other': choose one of its own, serving_default",
        ),
        (["--batch-size=0"], "--batch-size must be 1 to 4096, got 0"),
        (["--files=0"], "--files must be 1 to 10000, got 0"),
        (
            ["--split=train"],
            "--split is for dataset directories, and {images} is none: leave it out, or name the "
            "directory with --input",
        ),
        (
            ["--input-format=dataset"],
            "--input {images} holds no finished dataset: check the path, or build it first",
        ),
    ],
)
def test_options_that_cannot_work(
    model: Path, images: Path, tmp_path: Path, capsys, options: list[str], sentence: str
) -> None:
    said = refusal(capsys, model, images, tmp_path / "out", *options)
    assert said == sentence.format(model=model, images=images)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--split=test"], "{dataset} has no split 'test': choose train or validation"),
        (
            ["--max-side=64"],
            "--max-side is for image files, and {dataset} is a dataset directory: leave it out",
        ),
        (["--version=7"], "there is no version 7: choose one of 1"),
    ],
)
def test_options_that_do_not_suit_a_dataset(
    model: Path, dataset: Path, tmp_path: Path, capsys, options: list[str], sentence: str
) -> None:
    said = refusal(capsys, model, dataset, tmp_path / "out", *options)
    assert said == sentence.format(dataset=dataset)


def test_without_tensorflow_it_says_what_to_install(
    model: Path, images: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beam_jobs.predict.has_tensorflow", lambda: False)
    assert refusal(capsys, model, images, tmp_path / "out") == (
        "predictions are made with TensorFlow, which is not installed here: pip install "
        "'tillroll[build,train]', wherever the job's workers run"
    )


def test_a_model_that_changes_meanwhile_ends_the_job(
    model: Path, images: Path, tmp_path: Path, capsys, monkeypatch, fake: None
) -> None:
    changed = Path(shutil.copytree(model, tmp_path / "model"))
    load = boundary.load

    def change_and_load(saved: object) -> object:
        (changed / "variables").write_bytes(b"others")
        return load(saved)

    monkeypatch.setattr("beam_jobs.prediction.predictor.load", change_and_load)
    assert predict(changed, images, tmp_path / "out") == 1
    assert capsys.readouterr().err.startswith(
        f"error: the model {changed} has changed since the job began: run the same command again"
    )


def test_conservation() -> None:
    with pytest.raises(ValueError, match="of 3 inputs, 1 have predictions and 1 are in the quar"):
        PredictionsManifest(
            inputs=3,
            predicted=1,
            quarantined={"corrupt": 1},
            outputs=(),
            model_sha256="",
            options={},
            source_fingerprint="",
            written_by="",
            files={},
        )
