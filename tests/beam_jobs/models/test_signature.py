"""The inputs and outputs of a SavedModel, read without TensorFlow."""

import re

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.models.signature import read_signature
from schemas.predictions import ModelOutput
from tests.support.fake_model import model_bytes

STRING, FLOAT, COMPLEX = 7, 1, 8


def read(data: bytes, name: str = "serving_default") -> tuple[str, tuple[ModelOutput, ...]]:
    return read_signature(data, name, path="models/first")


def test_inputs_and_outputs_are_read() -> None:
    taken, outputs = read(
        model_bytes({"text": (STRING, [-1]), "boxes": (14, [-1, -1, 4])}, signature="files"),
        "files",
    )
    assert taken == "image_bytes"
    assert outputs == (
        ModelOutput(name="boxes", dtype="float32", shape=(-1, 4)),
        ModelOutput(name="text", dtype="string"),
    )


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        pytest.param(b"\xff", "models/first/saved_model.pb is damaged", id="damaged"),
        pytest.param(
            model_bytes(tags=("serve", "gpu")),
            "models/first has no graph for serving (tag 'serve' alone): save it with "
            "tf.saved_model.save",
            id="tags",
        ),
        pytest.param(
            model_bytes(signature="images"),
            "models/first has no signature 'serving_default': choose one of its own, images",
            id="name",
        ),
        pytest.param(
            model_bytes(signature="__saved_model_init_op"),
            "choose one of its own, none",
            id="TensorFlow's own",
        ),
        pytest.param(
            model_bytes(inputs={"images": (FLOAT, [-1, 64, 64, 1])}),
            "signature 'serving_default' of models/first takes images float32 [n, 64, 64, 1], must "
            "take image files, one string [n]",
            id="pixels",
        ),
        pytest.param(
            model_bytes(inputs={"a": (STRING, [-1]), "b": (STRING, [])}),
            "takes a string [n], b string [], must take",
            id="two inputs",
        ),
        pytest.param(
            model_bytes({"mean": (FLOAT, [])}),
            "output 'mean' of signature 'serving_default' of models/first is float32 [], must be",
            id="one value for all",
        ),
        pytest.param(
            model_bytes({"wave": (COMPLEX, [-1])}), "is of type 8 [n], must be", id="complex"
        ),
        pytest.param(model_bytes({}), "gives nothing: export the model anew", id="no outputs"),
    ],
)
def test_what_is_no_model_for_image_files(data: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read(data)


@pytest.mark.slow
def test_it_is_what_tensorflow_reads(tmp_path) -> None:
    tf = pytest.importorskip("tensorflow")
    module = tf.Module()
    module.shift = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="files")])
    def serve(files):
        sizes = tf.cast(tf.strings.length(files), tf.float32) + module.shift
        return {"size": sizes, "pair": tf.stack([sizes, sizes], 1), "twice": files + files}

    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": serve})
    taken, outputs = read((tmp_path / "saved_model.pb").read_bytes())
    signature = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    assert [taken] == list(signature.structured_input_signature[1])
    assert {one.name: (one.dtype, (None, *one.shape)) for one in outputs} == {
        name: (spec.dtype.name, tuple(spec.shape))
        for name, spec in signature.structured_outputs.items()
    }
