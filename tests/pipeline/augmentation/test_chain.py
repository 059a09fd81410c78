"""Chains of ops: who gets which numbers, how they are run, and that the batch doesn't matter."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.chain import augment, augment_views, views_as_examples
from pipeline.augmentation.corruption import JpegArtifacts, Noise
from pipeline.augmentation.geometric import Perspective, RandomZoom, Rotate
from pipeline.augmentation.photometric import Brightness, Contrast, Gamma, UnevenLight
from tests.support.augment_ops import GEOMETRIC, OPS, batch

CHAINS = {
    **{op.__name__: (op(),) for op in OPS},
    "all": tuple(op() for op in OPS),
    "all, each half the time": tuple(op(probability=0.5) for op in OPS),
}
SHAPES = {
    "color": {"height": 16, "width": 24, "channels": 3},
    # 17 · 13 numbers leave a remainder in vectorised loops.
    "odd, gray": {"height": 17, "width": 13, "channels": 1},
}


COMPILED = (Rotate(), Perspective(), Brightness(), Gamma(), Noise())
LINEAR = (Rotate(), Brightness(), Contrast(), Noise())


def run(
    given: dict,
    ops: tuple,
    rows: list[int] | np.ndarray,
    *,
    as_float: bool = False,
    **options: object,
) -> dict:
    image = given["image"][rows]
    examples = {
        "image": tf.constant(image.astype(np.float32) / 255 if as_float else image),
        "boxes": tf.constant(given["boxes"][rows]),
    }
    done = augment(examples, ops, tf.constant(given["seeds"][rows]), **options)
    return {name: tensor.numpy() for name, tensor in done.items()}


@pytest.mark.parametrize(
    ("chain", "shape"), [*((chain, "odd, gray") for chain in CHAINS), ("all", "color")]
)
def test_an_example_gets_the_same_bits_in_any_batch(chain: str, shape: str):
    check_that_the_batch_does_not_matter(CHAINS[chain], shape, as_float=True)


@pytest.mark.parametrize(
    ("ops", "shape"),
    [
        *((ops, shape) for ops in (COMPILED, LINEAR) for shape in ("odd, gray", "color")),
        ((Noise(), Rotate()), "color"),
    ],
)
def test_so_it_does_where_ops_are_compiled(ops: tuple, shape: str):
    check_that_the_batch_does_not_matter(ops, shape, dtype="float32", compiled=True)


def check_that_the_batch_does_not_matter(ops: tuple, shape: str, **options: object):
    given = batch(8, **SHAPES[shape])
    together = run(given, ops, np.arange(8), **options)
    order = np.array([5, 2, 7, 0, 1, 6, 3, 4])
    permuted = run(given, ops, order, **options)
    alone = [run(given, ops, [row], **options) for row in range(8)]
    for name, whole in together.items():
        np.testing.assert_array_equal(permuted[name], whole[order])
        np.testing.assert_array_equal(np.concatenate([each[name] for each in alone]), whole)


@pytest.mark.parametrize("chain", [op.__name__ for op in OPS])
def test_same_result_eagerly_in_a_function_and_in_tf_data(chain: str):
    given, ops = batch(8), CHAINS[chain]
    eager = run(given, ops, np.arange(8))
    assert eager["image"].dtype == np.uint8
    tensors = {name: tf.constant(values) for name, values in given.items()}
    unknown = {name: tf.TensorSpec([None, *t.shape[1:]], t.dtype) for name, t in tensors.items()}

    @tf.function(input_signature=[unknown])
    def step(examples: dict) -> dict:
        images = {"image": examples["image"], "boxes": examples["boxes"]}
        return augment(images, ops, examples["seeds"])

    dataset = tf.data.Dataset.from_tensor_slices(given).batch(8).map(step)
    assert dataset.element_spec["image"].shape.as_list() == [None, 16, 24, 3]
    known = tf.function(lambda examples: augment(examples, ops, tensors["seeds"]))
    images = {"image": tensors["image"], "boxes": tensors["boxes"]}
    for other in (step(tensors), next(iter(dataset)), known(images)):
        for name, expected in eager.items():
            np.testing.assert_array_equal(other[name].numpy(), expected)


@pytest.mark.slow
def test_ops_without_an_xla_kernel_are_the_documented_ones():
    given = batch(4)
    examples = {"image": tf.constant(given["image"] / np.float32(255))}
    seeds = tf.constant(given["seeds"])
    without = (*GEOMETRIC, JpegArtifacts)
    ops = tuple(op() for op in OPS if op not in without)
    compiled = tf.function(lambda e: augment(e, ops, seeds), jit_compile=True)(examples)
    eager = augment(examples, ops, seeds)["image"].numpy()
    # XLA joins multiplications and additions, which rounds once instead of twice.
    np.testing.assert_allclose(compiled["image"].numpy(), eager, atol=1e-5)
    for op in (Rotate, JpegArtifacts):  # all geometric ones end in the same kernel
        alone = (op(),)
        with pytest.raises(tf.errors.InvalidArgumentError, match="unsupported operations"):
            tf.function(lambda e, ops=alone: augment(e, ops, seeds), jit_compile=True)(examples)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_compiled_ops_differ_by_rounding(channels: int, dtype: str):
    given = batch(4, height=40, width=32, channels=channels)
    ops = (Rotate(), Perspective(), Contrast(factor=(0.5, 1)))
    plain = run(given, ops, np.arange(4), dtype=dtype)
    compiled = run(given, ops, np.arange(4), dtype=dtype, compiled=True)
    np.testing.assert_array_equal(compiled["boxes"], plain["boxes"])
    assert plain["image"].dtype == compiled["image"].dtype == dtype
    levels = 1 if dtype == "uint8" else 255
    off = np.abs(compiled["image"].astype(np.float64) - plain["image"]) * levels
    # Half a level by rounding, and up to 1/512 of the way from black to white in both directions,
    # between pixels that are noise here.
    assert off.max() <= 3
    assert 0 < off.mean() < 0.5


@pytest.mark.parametrize("ops", [(op(),) for op in GEOMETRIC] + [COMPILED], ids=str)
def test_compiled_ops_are_the_same_where_functions_run_eagerly(ops: tuple):
    """The advice of docs/how_to/debug.md; geometric ops ask for pixels outside of the image."""
    given = batch(4, height=24, width=16, channels=3)
    expected = run(given, ops, np.arange(4), dtype="uint8", compiled=True)
    tf.config.run_functions_eagerly(True)
    try:
        eager = run(given, ops, np.arange(4), dtype="uint8", compiled=True)
    finally:
        tf.config.run_functions_eagerly(False)
    np.testing.assert_array_equal(eager["boxes"], expected["boxes"])
    np.testing.assert_allclose(eager["image"], expected["image"].astype(float), atol=1)


@pytest.mark.parametrize(
    ("ops", "exact"),
    [
        ((Brightness(), Gamma(), Contrast()), True),
        ((Brightness(), Rotate(), Contrast()), True),
        ((UnevenLight(), Rotate()), True),
        ((Noise(), Noise(probability=0.5)), False),  # XLA joins a multiplication and an addition
        ((Contrast(), Noise(), Rotate(), Brightness()), False),
    ],
)
def test_compiled_ops_that_resample_nothing_are_the_same(ops: tuple, exact: bool):
    given = batch(4, height=17, width=13)
    plain = run(given, ops, np.arange(4), dtype="float32")
    compiled = run(given, ops, np.arange(4), dtype="float32", compiled=True)
    np.testing.assert_allclose(compiled["image"], plain["image"], rtol=0, atol=0 if exact else 1e-6)
    np.testing.assert_array_equal(compiled["boxes"], plain["boxes"])


@pytest.mark.parametrize("op", OPS)
def test_another_seed_gives_another_image(op: type):
    given = batch(2)
    given["image"][1], given["boxes"][1] = given["image"][0], given["boxes"][0]
    done = run(given, (op(),), [0, 1])
    assert (done["image"][0] != done["image"][1]).any()
    again = run(given, (op(),), [0, 1])
    np.testing.assert_array_equal(done["image"], again["image"])


def test_no_ops_return_the_examples_themselves():
    examples = {"image": object()}
    assert augment(examples, (), None) is examples


def test_a_users_function_is_an_op_and_each_place_has_its_own_seeds():
    received = []

    def record(examples: dict, seeds: tf.Tensor) -> dict:
        received.append(seeds.numpy())
        assert examples["image"].dtype == tf.float32
        return {**examples, "image": examples["image"] + 2.0}

    given = batch(4)
    examples = {"image": tf.constant(given["image"]), "id": tf.constant(["a", "b", "c", "d"])}
    done = augment(examples, (record, record), tf.constant(given["seeds"]))
    assert (done["image"].numpy() == 255).all()
    assert done["id"] is examples["id"]
    assert set(done) == {"image", "id"}
    everywhere = np.concatenate([given["seeds"], *received])
    assert len(everywhere) == len(np.unique(everywhere)) == 12
    assert everywhere.min() >= 0
    assert everywhere.max() < 2**32


@pytest.mark.parametrize(("added", "expected"), [(0.4, 100), (0.6, 101), (-0.4, 100), (-0.6, 99)])
def test_uint8_is_rounded(added: float, expected: int):
    def add(examples: dict, seeds: tf.Tensor) -> dict:
        return {**examples, "image": examples["image"] + added / 255}

    image = tf.fill([1, 2, 2, 1], tf.constant(100, tf.uint8))
    done = augment({"image": image}, (add,), tf.constant([1], tf.int64))
    assert (done["image"].numpy() == expected).all()


def test_every_uint8_comes_back():
    image = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    for kinds in ((Brightness, Rotate), (Rotate, Brightness)):
        ops = tuple(kind(probability=0) for kind in kinds)
        for compiled in (False, True):
            examples = {"image": tf.constant(image)}
            done = augment(examples, ops, tf.constant([1], tf.int64), compiled=compiled)
            np.testing.assert_array_equal(done["image"].numpy(), image)


@pytest.mark.parametrize(
    ("ops", "warps"),
    [
        ((Brightness(),), 0),
        ((Rotate(), Perspective(), RandomZoom()), 1),
        ((Rotate(), Brightness(), RandomZoom()), 2),
        ((Brightness(), Rotate(), RandomZoom(), Contrast()), 1),
    ],
)
def test_neighboring_geometric_ops_resample_once(ops: tuple, warps: int):
    traced = tf.function(lambda image, seeds: augment({"image": image}, ops, seeds))
    specs = (tf.TensorSpec([None, 8, 8, 3], tf.uint8), tf.TensorSpec([None], tf.int64))
    graph = traced.get_concrete_function(*specs).graph
    types = [operation.type for operation in graph.get_operations()]
    assert types.count("ImageProjectiveTransformV3") == warps


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        (
            tf.zeros([1, 2, 2, 3], tf.float16),
            "image of dtype float16 can't be augmented: give uint8, or float32 in 0…1",
        ),
        (
            tf.zeros([2, 2, 3]),
            r"image of shape \(2, 2, 3\) can't be augmented: give batches \[n, height,",
        ),
    ],
)
def test_refuses_other_images(image: tf.Tensor, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        augment({"image": image}, (Rotate(),), tf.constant([1], tf.int64))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda examples: None, "augmentation user_op returned an object of type NoneType: return"),
        (lambda examples: examples["image"], "returned an object of type EagerTensor"),
        (
            lambda examples: {**examples, "image": examples["image"][:, :8]},
            "returned 'image' as float32 (2, 8, 24, 3), and got float32 (2, 16, 24, 3): keep dtype",
        ),
        (
            lambda examples: {**examples, "image": tf.cast(examples["image"], tf.uint8)},
            "returned 'image' as uint8 (2, 16, 24, 3), and got float32 (2, 16, 24, 3)",
        ),
        (
            lambda examples: {**examples, "boxes": examples["boxes"][:, :1]},
            "augmentation user_op returned 'boxes' as float32 (2, 1, 4), and got",
        ),
        (lambda examples: {"image": examples["image"]}, "augmentation user_op left out 'boxes'"),
    ],
    ids=["nothing", "image alone", "size", "dtype", "boxes", "key"],
)
def test_refuses_ops_that_return_something_else(change: Callable[[dict], Any], sentence: str):
    def user_op(examples: dict, seeds: tf.Tensor) -> Any:
        return change(examples)

    given = batch(2, height=16, width=24, channels=3)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        run(given, (Rotate(), user_op), [0, 1])


def test_an_op_in_python_need_not_tell_its_shape():
    def darken(examples: dict, seeds: tf.Tensor) -> dict:
        image = tf.numpy_function(lambda image: image / 2, [examples["image"]], tf.float32)
        return {**examples, "image": image}

    examples = {"image": tf.ones([2, 4, 6, 1])}
    dataset = tf.data.Dataset.from_tensors(examples).map(
        lambda examples: augment(examples, (darken,), tf.range(2, dtype=tf.int64))
    )
    assert dataset.element_spec["image"].shape == [2, 4, 6, 1]
    (done,) = dataset
    assert float(tf.reduce_max(done["image"])) == 0.5


def test_refuses_sizes_unknown_while_tracing():
    traced = tf.function(
        lambda image: augment({"image": image}, (Rotate(),), tf.constant([1], tf.int64))
    )
    with pytest.raises(ValueError, match="known while tracing"):
        traced.get_concrete_function(tf.TensorSpec([1, None, 2, 3], tf.uint8))


def test_views_are_independent_and_the_first_is_the_only_one_of_others():
    given = batch(3)
    examples = {name: tf.constant(given[name]) for name in ("image", "boxes")}
    seeds, ops = tf.constant(given["seeds"]), (Rotate(), Brightness())
    views = augment_views({**examples, "step": tf.range(3)}, ops, seeds, 3)
    assert views["image"].shape == (3, 3, 16, 24, 3)
    assert views["boxes"].shape == (3, 3, *given["boxes"].shape[1:])
    assert views["step"].numpy().tolist() == [0, 1, 2]
    alone = augment(examples, ops, seeds)
    for name, values in alone.items():
        first, *others = tf.unstack(views[name], axis=1)
        np.testing.assert_array_equal(first, values)
        np.testing.assert_array_equal(augment_views(examples, ops, seeds, 1)[name], values)
        for other in others:
            assert not np.array_equal(other, first)
        assert not np.array_equal(*others)


def test_views_become_examples_side_by_side():
    image = tf.random.stateless_uniform([2, 3, 4, 5, 1], [0, 0])
    examples = views_as_examples(image)
    assert examples.shape == (6, 4, 5, 1)
    np.testing.assert_array_equal(examples[3], image[1, 0])
    assert views_as_examples(examples) is examples
