"""Input pipelines of tillroll, whole and up to each stage, as contenders of `timing`."""

import dataclasses
import itertools
import json
import multiprocessing
import os
import queue
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import tensorflow as tf

from benchmarks.harness.addresses import SHARED_PORTS, reserved_addresses
from benchmarks.harness.timing import Contender
from pipeline.config import InputConfig
from pipeline.dataset import make_distributed_dataset
from pipeline.distribution import strategies
from pipeline.distribution.host_memory import keep_host_memory
from pipeline.input.decode import decode_batches
from pipeline.input.features import feature_spec
from pipeline.input.index_dataset import InputShard, TensorArrays, batch_positions, training_records
from pipeline.input.input_pipeline import InputPipeline
from pipeline.input.pixel_batches import why_parsed
from pipeline.input.services import portable
from pipeline.records.info import load_info
from pipeline.records.reader import RecordReader
from pipeline.records.table import make_plan
from pipeline.sampling.plan import example_seeds

STAGES = ("plan", "read", "parse", "decode", "batch", "device")
SHUFFLE_BUFFER = 1000  # records
_ALIVE_S = 2
_ENDLESS = 2**62


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """The input of a training run.

    Attributes:
      data_dir: dataset directory.
      config: options.
      batch_size: images of a global batch.
      split: the split.
      start_step: step to begin with.
      replicas: more than 1 for MirroredStrategy on as many logical CPUs.
      workers: more than 1 for MultiWorkerMirroredStrategy in as many processes.
      order: "dealt" as ever; "sequence", shards one after the other through a buffer of
        `SHUFFLE_BUFFER` records, which is what else would be done; or "memory", so many records
        again and again, which takes no reading.
      services: addresses of data services that make the batches; none makes them here.
      slow_reading_ms: time that reading a record takes longer, waiting.
      slow_decoding_ms: time that decoding an image takes longer, computing.
    """

    data_dir: str
    config: InputConfig
    batch_size: int
    split: str = "train"
    start_step: int = 0
    replicas: int = 1
    workers: int = 1
    order: Literal["dealt", "sequence", "memory"] = "dealt"
    services: tuple[str, ...] = ()
    slow_reading_ms: float = 0.0
    slow_decoding_ms: float = 0.0

    def __post_init__(self) -> None:
        if min(self.replicas, self.workers) < 1 or min(self.replicas, self.workers) > 1:
            raise ValueError(
                f"replicas and workers must be at least 1, and one of them 1, got {self.replicas} "
                f"and {self.workers}"
            )
        if self.services and self.workers > 1:
            raise ValueError(
                f"data services are measured with one worker, not {self.workers}: leave one of the "
                "two out"
            )


def up_to(stage: str, run: Training) -> Contender:
    """Makes the contender that runs `training` up to a stage."""
    return Contender(
        function="benchmarks.harness.contenders:training", options={"run": run, "stage": stage}
    )


def training(run: Training, *, stage: str = "device") -> Iterator[Any]:
    """Batches up to a stage, the last of `STAGES` that is done.

    "batch" makes whole elements, augmentations included; "device" gives them to the replicas. All
    before it is what one input pipeline does for itself. Pixels in memory come at once: "read",
    "parse" and "decode" are the same then.
    """
    if stage == "device" and run.workers > 1:
        return _of_workers(run)
    keep_host_memory()
    if stage == "device":
        strategies.make_logical_cpus(run.replicas)
        return distributed(run)
    elements = _load(run, decoding=stage not in ("plan", "read", "parse"))
    if stage == "batch":
        return iter(elements.training(InputShard(), seed=0, start_step=run.start_step))
    plan = make_plan(
        elements.info, run.split, run.config, elements.table, batch_size=run.batch_size, seed=0
    )
    numbers = training_records(elements.table, plan, InputShard(), start_step=run.start_step)
    if stage == "plan":
        return iter(numbers.prefetch(tf.data.AUTOTUNE))
    if pixels := elements.pixels:
        images = numbers.map(
            lambda numbers: pixels.read(numbers, (), run.config, batch_size=run.batch_size),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return iter(images.prefetch(1))
    records = elements.reader.read(
        numbers, batch_size=run.batch_size, block_length=run.config.reading.block_length
    )
    if stage == "read":
        return iter(records.batch(run.batch_size).prefetch(tf.data.AUTOTUNE))
    if stage == "parse":
        names = ("image/encoded", "image/height", "image/width")
        spec = feature_spec(elements.info.features, names)
        parsed = records.batch(run.batch_size).map(
            lambda serialized: tf.io.parse_example(serialized, spec),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return iter(parsed.prefetch(tf.data.AUTOTUNE))
    rows = tf.range(run.batch_size, dtype=tf.int64)
    seeds = batch_positions(InputShard(), start_step=run.start_step).flat_map(
        lambda step, _: tf.data.Dataset.from_tensor_slices(
            example_seeds(plan.seed, step, rows, TensorArrays())
        )
    )
    decoded = decode_batches(
        records, seeds, elements.info, run.config, (), batch_size=run.batch_size
    )
    return iter(decoded.prefetch(tf.data.AUTOTUNE))


def reader_of(run: Training) -> str:
    """Says in a sentence by which reader the whole pipeline reads."""
    config = portable(run.config) if run.services else run.config
    reason = why_parsed(load_info(run.data_dir), config) or _why_slowed(run)
    if reason is None:
        return "reader: pixels come from shards in memory"
    return f"reader: TensorFlow parses the records, as {reason}"


def _why_slowed(run: Training) -> str | None:
    """Tells why the run has a reader of its own, which makes records; None if it has not."""
    if run.order != "dealt":
        return "they come in another order"
    return "they come slower" if run.slow_reading_ms or run.slow_decoding_ms else None


def distributed(run: Training, *, produced: tf.Variable | None = None) -> Iterator[Any]:
    """Global batches under the strategy.

    Args:
      run: the input.
      produced: counts the replicas' batches as they are made, int64.
    """
    strategy = tf.distribute.get_strategy()
    if run.replicas > 1:
        strategy = tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(run.replicas)])
    if run.services:
        return iter(
            make_distributed_dataset(
                strategy,
                run.data_dir,
                split=run.split,
                global_batch_size=run.batch_size,
                config=run.config,
                start_step=run.start_step,
                services=run.services,
            )
        )
    elements = _load(run, decoding=True)

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        batches = elements.training(InputShard.of(context), seed=0, start_step=run.start_step)
        if produced is None:
            return batches
        counted = batches.map(lambda *batch: _counted(produced, batch))
        return counted.prefetch(tf.data.AUTOTUNE)

    return iter(strategy.distribute_datasets_from_function(pipeline))


def _of_workers(run: Training) -> Iterator[Any]:
    """A number each time all workers have made their slice of a global batch."""
    context = multiprocessing.get_context("spawn")
    made = [context.Queue(maxsize=1) for _ in range(run.workers)]
    workers: list[Any] = []
    with reserved_addresses(run.workers) as addresses:
        try:
            for index, each in enumerate(made):
                place = {"type": "worker", "index": index}
                task = {"cluster": {"worker": addresses}, "task": place}
                workers.append(context.Process(target=_work, args=(run, task, each)))
                workers[-1].start()
            for step in itertools.count(1):
                for each in made:
                    _wait_for(each, workers)
                yield step
        finally:
            for worker in workers:
                worker.kill()  # TensorFlow keeps SIGTERM for itself


def _wait_for(made: Any, workers: Sequence[Any]) -> None:
    """Waits for a worker's next batch, unless one has ended: the others would wait for it."""
    while True:
        try:
            made.get(timeout=_ALIVE_S)
        except queue.Empty:
            for index, worker in enumerate(workers):
                if not worker.is_alive():
                    raise RuntimeError(
                        f"worker {index} ended with status {worker.exitcode}"
                    ) from None
        else:
            return


def _work(run: Training, task: dict[str, Any], made: Any) -> None:
    os.environ |= {**SHARED_PORTS, "TF_CONFIG": json.dumps(task)}
    strategy = strategies.make_strategy("multi_worker")
    elements = _load(run, decoding=True)
    dataset = strategy.distribute_datasets_from_function(
        lambda context: elements.training(InputShard.of(context), seed=0, start_step=run.start_step)
    )
    for step, _ in enumerate(dataset):
        made.put(step)


def _counted(produced: tf.Variable, batch: Any) -> Any:
    with tf.control_dependencies([produced.assign_add(1)]):
        return tf.nest.map_structure(tf.identity, batch)


def _load(run: Training, *, decoding: bool) -> InputPipeline:
    info = load_info(run.data_dir)
    elements = InputPipeline.load(info, run.split, run.batch_size, run.config)
    if run.order != "dealt":
        in_sequence: Any = InSequence(elements.table.paths, in_memory=run.order == "memory")
        elements = dataclasses.replace(elements, reader=in_sequence)
    slow = _SlowReader(
        elements.reader, run.slow_reading_ms, run.slow_decoding_ms if decoding else 0.0
    )
    reader: Any = slow
    pixels = None if _why_slowed(run) else elements.pixels
    return dataclasses.replace(elements, reader=reader, pixels=pixels)


@dataclasses.dataclass(frozen=True)
class InSequence:
    """A reader that does not care what is asked for."""

    paths: tuple[str, ...]
    in_memory: bool

    def read(self, batches: tf.data.Dataset, **options: Any) -> tf.data.Dataset:
        shards = tf.data.Dataset.from_tensor_slices(list(self.paths)).shuffle(len(self.paths))
        if not self.in_memory:
            shards = shards.repeat()  # before the buffer, which would mostly be filled again
        records = shards.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
        if self.in_memory:
            return records.take(SHUFFLE_BUFFER).cache().repeat()
        return records.shuffle(SHUFFLE_BUFFER)

    def check_version(self, batch: tf.Tensor) -> tf.Operation:
        return tf.no_op()


@dataclasses.dataclass(frozen=True)
class _SlowReader:
    """A reader whose records take longer to come, and longer to decode."""

    reader: RecordReader
    reading_ms: float
    decoding_ms: float

    def check_version(self, batch: tf.Tensor) -> tf.Operation:
        return self.reader.check_version(batch)

    def read(self, batches: tf.data.Dataset, **options: Any) -> tf.data.Dataset:
        records = self.reader.read(batches, **options)
        if self.reading_ms:
            # Not the records themselves pass through the op that sleeps: it holds its lock while
            # its input makes an element, and an iterator that ends in that moment waits for ever,
            # should the input wait for the same end.
            variant = tf.raw_ops.SleepDataset(
                input_dataset=tf.data.experimental.to_variant(tf.data.Dataset.range(_ENDLESS)),
                sleep_microseconds=tf.cast(self.reading_ms * 1e3, tf.int64),
                output_types=[tf.int64],
                output_shapes=[tf.TensorShape([])],
            )
            ticks = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.int64))
            records = tf.data.Dataset.zip(records, ticks).map(lambda record, _: record)
        if self.decoding_ms:
            records = records.map(self._compute, num_parallel_calls=tf.data.AUTOTUNE)
        return records

    def _compute(self, record: tf.Tensor) -> tf.Tensor:
        until = tf.timestamp() + self.decoding_ms / 1e3
        [late] = tf.while_loop(
            lambda now: now < until, lambda now: [tf.timestamp()], [tf.timestamp()]
        )
        with tf.control_dependencies([late]):
            return tf.identity(record)
