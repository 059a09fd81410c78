"""`python -m beam_jobs.predict` with a model that `pipeline.export` writes, and TensorFlow."""

import json
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("tensorflow")

import keras
import tensorflow as tf

from pipeline.records.info import load_info
from pipeline.serving.saved_model import export
from pipeline.tasks.layout_classifier import LayoutClassifier
from tests.support.processes import run_python
from tests.support.receipts import contents, read_table


@pytest.fixture(scope="module")
def model(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier whose predictions differ from receipt to receipt."""
    path = tmp_path_factory.mktemp("exported") / "model"
    info = load_info(dataset)
    task = LayoutClassifier(size=32, width=8, units=8)
    keras.utils.set_random_seed(1)
    network = task.build(info)
    for variable in network.trainable_variables:
        variable.assign(keras.random.normal(variable.shape, stddev=0.3))
    export(task, network, info, path)
    return path


def predict(model: Path, source: Path, output: Path, *options: str) -> dict[str, dict]:
    """Runs the command in a process of its own, where TensorFlow has one thread."""
    where = ("--input", str(source), "--output", str(output), "--format=jsonl", "--quiet")
    run_python("-m", "beam_jobs.predict", str(model), *where, *options)
    [path] = output.glob("predictions-*.jsonl")
    return {line["id"]: line for line in map(json.loads, path.read_text().splitlines())}


def test_tables_and_records_on_any_runner_give_what_the_model_gives(
    model: Path, table: Path, dataset: Path, tmp_path: Path, job_endpoint: str
) -> None:
    lines = predict(model, table, tmp_path / "two", "--workers=2")
    runner = ("--runner=PortableRunner", f"--job_endpoint={job_endpoint}")
    predict(model, table, tmp_path / "portable", *runner, "--environment_type=LOOPBACK")
    assert contents(tmp_path / "two") == contents(tmp_path / "portable")

    # A model sees an image file as the record that the build makes of it.
    records = predict(model, dataset, tmp_path / "records", "--workers=1")
    assert {id_: line["predictions"] for id_, line in records.items()} == {
        id_: line["predictions"] for id_, line in lines.items()
    }

    rows = read_table(table)
    loaded = tf.saved_model.load(str(model))
    files = tf.constant([(table.parent / row["image"]).read_bytes() for row in rows])
    found = loaded.signatures["serving_default"](image_bytes=files)
    assert lines.keys() == {row["id"] for row in rows}
    for number, row in enumerate(rows):
        predictions = lines[row["id"]]["predictions"]
        assert predictions["label"] == found["label"][number].numpy().decode()
        assert predictions["label_id"] == int(found["label_id"][number])
        probability = float(found["probability"][number])
        assert predictions["probability"] == pytest.approx(probability, abs=1e-5)
    assert len({line["predictions"]["probability"] for line in lines.values()}) > 20
