"""The SavedModel: what it takes, gives and tells, in a process without this package."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import keras
import tensorflow as tf
from PIL import Image

from pipeline.dataset import make_dataset
from pipeline.records.info import load_info
from pipeline.serving.saved_model import DESCRIPTION, export
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.tasks.text_detector import TextDetector
from tests.support.dataset_factory import LAYOUTS

pytestmark = pytest.mark.slow

CLASSIFIER = LayoutClassifier(size=48, width=8, units=8)
DETECTOR = TextDetector(height=64, width=48, filters=8)
TASKS = {"classifier": CLASSIFIER, "detector": DETECTOR}
LOADED_ALONE = """
import pathlib, sys
import numpy as np
import tensorflow as tf
files = [path.read_bytes() for path in sorted(pathlib.Path("files").iterdir())]
for model in sys.argv[1:]:
    signature = tf.saved_model.load(model).signatures["serving_default"]
    assert list(signature.structured_input_signature[1]) == ["image_bytes"]
    found = {name: each.numpy() for name, each in signature(image_bytes=files).items()}
    texts = {name: each.astype("S") for name, each in found.items() if each.dtype == object}
    np.savez(f"{model}.npz", **{**found, **texts})
assert not {"pipeline", "schemas"} & set(sys.modules)
"""


def stored_files(directory: Path, folder: Path) -> list[str]:
    """Writes the images of a shard as files; returns the receipts' ids."""
    folder.mkdir()
    shard = load_info(directory).split("train").shards[0]
    dataset = tf.data.TFRecordDataset(str(directory / shard.name))
    ids = []
    for record in dataset:
        features = tf.train.Example.FromString(record.numpy()).features.feature
        (folder / f"{len(ids):03d}.jpg").write_bytes(features["image/encoded"].bytes_list.value[0])
        ids.append(features["image/source_id"].bytes_list.value[0].decode())
    assert len(ids) == shard.records > 0
    return ids


def test_fresh_process_predicts_the_same(directory: Path, tmp_path: Path):
    """Models made under a strategy predict files as they are in records, without this package."""
    info = load_info(directory)
    models = {}
    for name, task in TASKS.items():
        with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
            keras.utils.set_random_seed(1)
            models[name] = task.build(info)
        for variable in models[name].trainable_variables:  # Keras starts biases at 0
            variable.assign(keras.random.normal(variable.shape, stddev=0.3))
        export(task, models[name], info, tmp_path / name)
    ids = stored_files(directory, tmp_path / "files")
    command = [sys.executable, "-P", "-c", LOADED_ALONE, *TASKS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name, task in TASKS.items():
        config = dataclasses.replace(
            task.inputs(info), augmentations=(), features=("image", "id", "layout")
        )
        batch = next(iter(make_dataset(directory, global_batch_size=32, config=config)))
        order = [batch["id"].numpy().astype(str).tolist().index(id_) for id_ in ids]
        expected = task.predictions(models[name](tf.gather(batch["image"], order)))
        with np.load(tmp_path / f"{name}.npz") as found:
            for output, values in expected.items():
                got = found["label_id" if output == "label" else output]
                assert got.dtype == values.numpy().dtype
                np.testing.assert_allclose(got, values, atol=1e-5)
                assert len(np.unique(got)) > 1 or output == "label"
            if "label" in expected:
                names = np.array(info.layouts)[expected["label"].numpy()]
                assert found["label"].astype(str).tolist() == names.tolist()


def test_phone_photo_is_seen_upright(directory: Path, tmp_path: Path):
    """A large photo lying on its side gives what the upright, small one gives; PNG or JPEG."""
    info = load_info(directory)
    keras.utils.set_random_seed(1)
    export(DETECTOR, DETECTOR.build(info), info, tmp_path / "model")
    upright = Image.new("RGB", (768, 1024), "white")
    upright.paste((30, 30, 30), (150, 100, 500, 300))
    upright.paste((90, 90, 90), (80, 750, 700, 850))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter to the right
    upright.save(tmp_path / "a.png")
    upright.resize((1536, 2048)).rotate(90, expand=True).save(tmp_path / "b.jpg", exif=exif)
    upright.rotate(90, expand=True).save(tmp_path / "c.jpg")
    files = [(tmp_path / name).read_bytes() for name in ("a.png", "b.jpg", "c.jpg")]
    signature = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    small, large, lying = signature(image_bytes=tf.constant(files))["mask"].numpy()
    assert np.abs(small - lying).mean() > 0.05
    assert np.abs(small - large).mean() < 0.01


def test_what_is_no_model_stays(directory: Path, tmp_path: Path):
    info = load_info(directory)
    other = tmp_path / "notes" / "precious.txt"
    other.parent.mkdir()
    other.write_text("kept")
    with pytest.raises(ValueError, match="notes exists and is not a SavedModel: choose another"):
        export(CLASSIFIER, CLASSIFIER.build(info), info, other.parent)
    assert [path.name for path in tmp_path.rglob("*")] == ["notes", "precious.txt"]


def test_tells_what_it_is(directory: Path, tmp_path: Path):
    info = load_info(directory)
    for _ in range(2):  # the second replaces the first
        export(CLASSIFIER, CLASSIFIER.build(info), info, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    described = json.loads((tmp_path / "model" / DESCRIPTION).read_text())
    variables = described.pop("variables")  # Keras numbers models and layers by what was built
    assert [re.sub(r"_\d+(?=/)", "", path) for path in variables] == [
        f"sequential/{layer}/{name}"
        for layer in ("conv2d", "dense", "dense")
        for name in ("kernel", "bias")
    ]
    assert described == {
        "task": "pipeline.tasks.layout_classifier:LayoutClassifier",
        "options": {
            "label": "layout",
            "size": "48",
            "depth": "shallow",
            "width": "8",
            "units": "8",
            "dropout": "0.0",
            "label_smoothing": "0.0",
            "logit_adjustment": "0.0",
            "augment": "False",
        },
        "dataset_digest": info.digest,
        "stored_images": {
            "encoding": "jpeg",
            "max_side": 1024,
            "quality": 90,
            "raw_size": [60, 40],
            "fit": "pad",
            "channels": 3,
            "full_decode": False,
            "restart_rows": False,
        },
        "inputs": {"height": 48, "width": 48, "channels": 1, "fit": "pad"},
        "features": ["image", "label"],
        "label": "layout",
        "vocabulary": sorted(LAYOUTS),
        "vocabularies": {"layout": sorted(LAYOUTS)},
    }
