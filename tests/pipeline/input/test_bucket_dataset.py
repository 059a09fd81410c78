"""Datasets with buckets: the batches that the plan deals, in the sizes of their buckets."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.augmentation.chain import augment_views
from pipeline.augmentation.corruption import Noise
from pipeline.augmentation.geometric import Rotate
from pipeline.config import Balance, InputConfig, RandomCrop
from pipeline.dataset import make_dataset, make_evaluation_dataset
from pipeline.input.index_dataset import InputShard
from pipeline.input.input_pipeline import InputPipeline
from pipeline.records.bucket_table import BucketTable
from pipeline.records.info import load_info
from pipeline.records.sequence import Records
from tests.support.dataset_factory import write_dataset

pytestmark = pytest.mark.slow

COUNTS = {"alpha": 34, "beta": 17, "gamma": 5, "omega": 1}
SIZES = ((60, 40), (90, 30), (60, 40), (40, 60), (60, 40))
BUCKETS = ((48, 64), (64, 48), (96, 32))
BATCH = 6
NAMES = ("image", "boxes", "id", "label", "weight", "step", "row", "seed")


@pytest.fixture(scope="module")
def wide_and_long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """57 records in four layouts, of three ratios of height to width."""
    folder = tmp_path_factory.mktemp("buckets") / "receipts"
    return write_dataset(folder, counts=COUNTS, sizes=SIZES)


def config_of(**options: Any) -> InputConfig:
    values: dict[str, Any] = {"buckets": BUCKETS, "features": NAMES, "max_boxes": 2}
    return InputConfig(**{**values, **options})


def batches(dataset: tf.data.Dataset, count: int) -> Iterator[dict[str, np.ndarray]]:
    return itertools.islice(dataset.as_numpy_iterator(), count)


def planned_ids(directory: Path, config: InputConfig, step: int, seed: int) -> list[bytes]:
    """Ids of a global batch by NumPy, row by row."""
    info, records = load_info(directory), Records(directory, "train")
    table = BucketTable.load(info, "train", config)
    plan = table.make_plan(info, "train", config, batch_size=BATCH, seed=seed)
    bucket, units = plan.batch(step)
    numbers = table.table.order[table.of_bucket(bucket).first_records[0] + units.unit]
    return [records[number]["image/source_id"].encode() for number in numbers]


def by_step(batches: Iterator[dict[str, np.ndarray]]) -> dict[int, dict[int, bytes]]:
    """Ids by step and row."""
    found: dict[int, dict[int, bytes]] = defaultdict(dict)
    for batch in batches:
        for step, row, id_ in zip(batch["step"], batch["row"], batch["id"], strict=True):
            found[int(step)][int(row)] = id_
    return found


@pytest.mark.parametrize(
    ("shards", "start_step", "alpha"),
    [
        ([InputShard()], 0, 1.0),
        ([InputShard(replicas=2, replica_range=range(n, n + 1)) for n in range(2)], 7, 0.3),
        (
            [InputShard(replicas=2, replica_range=range(2), workers=2, worker=n) for n in (0, 1)],
            5,
            0.3,
        ),
    ],
    ids=["one", "replicas", "workers"],
)
def test_pipelines_make_the_planned_batches(
    wide_and_long: Path, shards: list[InputShard], start_step: int, alpha: float
):
    """Together, from any step on: the step is all the state."""
    config = config_of(balance=Balance(alpha=alpha), features=("image", "id", "step", "row"))
    pipeline = InputPipeline.load(load_info(wide_and_long), "train", BATCH, config)
    found: dict[int, dict[int, bytes]] = defaultdict(dict)
    steps = 24
    for shard in shards:
        dataset = pipeline.training(shard, seed=3, start_step=start_step)
        own = steps // shard.workers * len(shard.replica_range)
        for step, rows in by_step(batches(dataset, own)).items():
            found[step] |= rows
    assert sorted(found) == list(range(start_step, start_step + steps))
    for step, rows in found.items():
        expected = planned_ids(wide_and_long, config, step, seed=3)
        assert [rows[row] for row in range(BATCH)] == expected


def test_images_have_the_size_of_their_bucket(wide_and_long: Path):
    """And the pixels and boxes of a dataset of that size; every record comes in its bucket."""
    info, config = load_info(wide_and_long), config_of()
    single = {}
    for height, width in BUCKETS:
        of_size = config_of(buckets=None, height=height, width=width)
        whole = InputPipeline.load(info, "train", BATCH, of_size, evaluation=True).first_records(99)
        for id_, image, boxes in zip(whole["id"], whole["image"], whole["boxes"], strict=True):
            single[id_, (height, width)] = image, boxes
    stored = {
        record["image/source_id"].encode(): (record["image/height"], record["image/width"])
        for record in Records(wide_and_long, "train")
    }
    nearest = {(60, 40): (64, 48), (90, 30): (96, 32), (40, 60): (48, 64)}
    dataset = make_dataset(wide_and_long, global_batch_size=BATCH, config=config)
    assert dataset.element_spec["image"].shape.as_list() == [BATCH, None, None, 3]
    seen = Counter()
    for batch in batches(dataset, 30):
        size = batch["image"].shape[1:3]
        for id_, image, boxes in zip(batch["id"], batch["image"], batch["boxes"], strict=True):
            assert nearest[stored[id_]] == size
            np.testing.assert_array_equal(image, single[id_, size][0])
            np.testing.assert_array_equal(boxes, single[id_, size][1])
            seen[id_] += 1
    assert set(seen) == set(stored)


def test_augmentation_knows_the_size(wide_and_long: Path):
    """The pixels are those of the device, but for rounding; it sees shapes batch by batch."""
    ops = (Rotate(), Noise())
    options = {"augmentations": ops, "crop": RandomCrop(), "views": 2}
    host, device = (
        list(batches(make_dataset(wide_and_long, global_batch_size=BATCH, config=config), 8))
        for config in (config_of(**options), config_of(**options, placement="device"))
    )
    augment = tf.function(lambda batch: augment_views(batch, ops, batch["seed"], 2))
    for expected, batch in zip(host, device, strict=True):
        made = augment({name: tf.constant(batch[name]) for name in ("image", "boxes", "seed")})
        np.testing.assert_allclose(made["image"], expected["image"], atol=3.01 / 255)
        np.testing.assert_array_equal(made["boxes"], expected["boxes"])
    assert augment.experimental_get_tracing_count() == 3


def test_weights_are_those_without_buckets(wide_and_long: Path):
    """They undo the balance of a layout over all buckets."""
    weights = []
    for buckets in (None, BUCKETS):
        config = config_of(buckets=buckets, balance=Balance(alpha=0.3))
        dataset = make_dataset(wide_and_long, global_batch_size=BATCH, config=config)
        of_layout = {}
        for batch in batches(dataset, 30):
            of_layout |= dict(zip(batch["label"].tolist(), batch["weight"].tolist(), strict=True))
        weights.append(of_layout)
    assert weights[0] == weights[1]
    assert len(set(weights[0].values())) == 4


@pytest.mark.parametrize("batch_size", [4, 100])
def test_an_evaluation_has_each_record_once(wide_and_long: Path, batch_size: int):
    """Bucket by bucket; then it begins anew."""
    dataset, steps = make_evaluation_dataset(
        tf.distribute.get_strategy(),
        wide_and_long,
        split="train",
        global_batch_size=batch_size,
        config=config_of(),
    )
    records = Records(wide_and_long, "train")
    of_ratio = Counter(record["image/height"] / record["image/width"] for record in records)
    assert steps == sum(-(-count // batch_size) for count in of_ratio.values())
    twice = list(batches(dataset, 2 * steps))
    for made in (twice[:steps], twice[steps:]):
        ids = [id_ for batch in made for id_ in batch["id"][batch["weight"] == 1]]
        assert sorted(ids) == sorted(each["image/source_id"].encode() for each in records)
        sizes = [batch["image"].shape[1:3] for batch in made]
        assert [size for size, _ in itertools.groupby(sizes)] == list(BUCKETS)
    assert set(np.concatenate([batch["weight"] for batch in twice])) == {0.0, 1.0}


def test_an_evaluation_without_end_is_padded(wide_and_long: Path):
    """Under parameter servers workers go ahead of each other."""
    pipeline = InputPipeline.load(
        load_info(wide_and_long), "train", BATCH, config_of(), evaluation=True
    )
    ids, steps = [], pipeline.evaluation_steps()
    for worker in range(2):
        shard = InputShard(workers=2, worker=worker)
        for batch in batches(pipeline.evaluation(shard, steps=None), steps):
            ids += batch["id"][batch["weight"] == 1].tolist()
    assert len(ids) == len(set(ids)) == sum(COUNTS.values())


def test_samples_have_one_size(wide_and_long: Path):
    config = config_of(features=("image", "id"))
    pipeline = InputPipeline.load(load_info(wide_and_long), "train", 8, config, evaluation=True)
    samples = pipeline.first_records(12)
    assert samples["image"].shape == (12, 64, 48, 3)
    with_number = config_of(buckets=2, height=48, width=48)
    dataset = make_dataset(wide_and_long, global_batch_size=BATCH, config=with_number)
    shapes = {batch["image"].shape[1:3] for batch in batches(dataset, 20)}
    assert len(shapes) == 2


def test_a_step_under_xla_is_compiled_once_for_each_size(wide_and_long: Path):
    traced = []

    @tf.function(jit_compile=True)
    def step(image: tf.Tensor) -> tf.Tensor:
        traced.append(image.shape.as_list())
        return tf.reduce_mean(tf.nn.conv2d(image, tf.ones([3, 3, 3, 4]), 2, "SAME"))

    config = config_of(features=None)
    dataset = make_dataset(wide_and_long, global_batch_size=BATCH, config=config)
    for image, *_ in dataset.take(20):
        step(image)
    assert sorted(traced) == [[BATCH, height, width, 3] for height, width in BUCKETS]


def test_stored_pixels_of_one_size_are_refused(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts", raw=True)
    with pytest.raises(ValueError, match="stores pixels of one size, which buckets would only pad"):
        make_dataset(directory, config=config_of())
