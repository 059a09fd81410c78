"""An exported model keeps the rules of TensorFlow Serving: tag, signature, names, batches, ops.

They are those of its guides "RESTful API" and "SignatureDefs in SavedModel for TensorFlow Serving".
The server itself is in no package of Debian or PyPI. So the model is loaded as the server loads it:
by the tag, into a session, and called by the names of tensors in its signature.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorflow")

import keras
import numpy as np
import tensorflow as tf
from PIL import Image
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from pipeline.records.info import load_info
from pipeline.serving.saved_model import export
from pipeline.tasks.layout_classifier import LayoutClassifier
from pipeline.tasks.text_detector import TextDetector
from tests.support.pictures import encode

pytestmark = pytest.mark.slow

TASKS = {
    "classifier": LayoutClassifier(size=48, width=8, units=8),
    "detector": TextDetector(height=64, width=48, filters=8),
}


@pytest.fixture(scope="module", params=TASKS)
def model(request: pytest.FixtureRequest, directory: Path, tmp_path_factory) -> Path:
    # The server takes folders whose names are numbers for the versions of a model.
    path = tmp_path_factory.mktemp("models") / request.param / "1"
    info, task = load_info(directory), TASKS[request.param]
    keras.utils.set_random_seed(1)
    export(task, task.build(info), info, path)
    return path


def graph_of(model: Path) -> Any:
    saved = saved_model_pb2.SavedModel.FromString((model / "saved_model.pb").read_bytes())
    [graph] = [one for one in saved.meta_graphs if set(one.meta_info_def.tags) == {"serve"}]
    return graph


def test_signatures(model: Path) -> None:
    signatures = graph_of(model).signature_def
    assert {"serving_default", "images"} <= set(signatures)
    for name in ("serving_default", "images"):
        signature = signatures[name]
        assert signature.method_name == "tensorflow/serving/predict"
        tensors = {**signature.inputs, **signature.outputs}
        for tensor in tensors.values():  # rows of a request are rows of a batch
            assert not tensor.tensor_shape.unknown_rank
            assert tensor.tensor_shape.dim[0].size == -1
    [(name, tensor)] = signatures["serving_default"].inputs.items()
    assert name.endswith("_bytes")  # so that JSON may hold the file in Base64
    assert tensor.dtype == tf.string.as_datatype_enum
    assert len(tensor.tensor_shape.dim) == 1


def test_every_operation_is_one_of_tensorflow_itself(model: Path) -> None:
    graph = graph_of(model).graph_def
    nodes = [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
    functions = {one.signature.name for one in graph.library.function}
    names = {node.op for node in nodes} - functions
    assert len(names) > 10
    assert [name for name in names if op_def_registry.get(name) is None] == []
    assert not names & {"PyFunc", "EagerPyFunc", "PyFuncStateless"}  # would need Python


def test_it_is_called_by_the_names_of_its_signature(model: Path, tmp_path: Path) -> None:
    """With files of several sizes and kinds, from a copy without the folder of assets."""
    copy = Path(shutil.copytree(model, tmp_path / "2"))
    shutil.rmtree(copy / "assets.extra")
    picture = Image.effect_noise((90, 60), 80)
    files = [encode(picture, "JPEG"), encode(picture.resize((200, 300)).convert("RGB"), "PNG")]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(copy))
        signature = loaded.signature_def["serving_default"]
        [taken] = signature.inputs.values()
        fetched = {name: tensor.name for name, tensor in signature.outputs.items()}
        found = session.run(fetched, {taken.name: files})
    kept = tf.saved_model.load(str(model))  # variables are freed with it
    expected = kept.signatures["serving_default"](image_bytes=tf.constant(files))
    assert found.keys() == expected.keys()
    for name, values in found.items():
        assert len(values) == len(files)
        if values.dtype == object:
            assert values.tolist() == expected[name].numpy().tolist()
        else:
            np.testing.assert_allclose(values, expected[name], atol=1e-5)
