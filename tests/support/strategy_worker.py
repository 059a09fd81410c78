"""A process that trains and evaluates under strategies, and prints as JSON lines what it is given.

TF_CONFIG says which process of a cluster it is, if of any.
"""

import argparse
import hashlib
import itertools
import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from pipeline.augmentation.corruption import Noise
from pipeline.augmentation.geometric import Rotate
from pipeline.config import InputConfig
from pipeline.dataset import make_distributed_dataset, make_evaluation_dataset
from pipeline.records.info import load_info

CONFIG = InputConfig(
    height=24,
    width=16,
    channels=1,
    dtype="uint8",
    features=("id", "image", "step", "row", "weight"),
    augmentations=(Rotate(), Noise()),
)
TRAINING = {"split": "train", "global_batch_size": 12, "config": CONFIG, "seed": 5}
EVALUATION = {"split": "train", "global_batch_size": 24, "config": CONFIG}
PARAMETER_SERVER = "parameter server"
DEVICES = 4
EVALUATIONS = 2
MOST_ROUNDS = 50
TIME_LIMIT_S = 240


def mirrored(replicas: int) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])


STRATEGIES: dict[str, Callable[[], tf.distribute.Strategy]] = {
    "default": tf.distribute.get_strategy,
    "one device": lambda: tf.distribute.OneDeviceStrategy("CPU:1"),
    "mirrored, 2 replicas": lambda: mirrored(2),
    "mirrored, 2 pipelines": lambda: mirrored(2),
    "mirrored, 4 replicas": lambda: mirrored(4),
    "multi-worker": tf.distribute.MultiWorkerMirroredStrategy,
}
INPUT_OPTIONS = {
    "mirrored, 2 pipelines": tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA
    )
}


def rows(batch: dict[str, Any]) -> list[dict[str, Any]]:
    """Lists the step, row and contents of each example of a batch."""
    columns = (batch[name].numpy() for name in CONFIG.features)
    return [
        {
            "id": id_.decode(),
            "digest": hashlib.sha256(image.tobytes()).hexdigest(),
            "step": int(step),
            "row": int(row),
            "weight": float(weight),
        }
        for id_, image, step, row, weight in zip(*columns, strict=True)
    ]


def show(strategy: str, kind: str, batches: list[dict[str, Any]]) -> None:
    """Prints a step; `batches` are those of this process."""
    found = [row for batch in batches for row in rows(batch)]
    print(json.dumps({"strategy": strategy, "kind": kind, "rows": found}), flush=True)


def train_and_evaluate(name: str, directory: str, *, start_step: int, steps: int) -> None:
    """Trains for so many steps and then evaluates; 0 trains until the process is killed."""
    strategy = STRATEGIES[name]()

    @tf.function
    def next_step(iterator: Any) -> tuple[Any, Any]:
        batch = next(iterator)
        # Workers wait for each other, as they do in training.
        weights = strategy.run(lambda each: tf.reduce_sum(each["weight"]), (batch,))
        total = strategy.reduce("SUM", weights, axis=None)
        return strategy.run(lambda each: each, (batch,)), total

    def show_step(kind: str, iterator: Any) -> float:
        batch, weight = next_step(iterator)
        columns = [strategy.experimental_local_results(batch[each]) for each in CONFIG.features]
        replicas = zip(*columns, strict=True)
        show(name, kind, [dict(zip(CONFIG.features, each, strict=True)) for each in replicas])
        return float(weight)

    training = make_distributed_dataset(
        strategy,
        directory,
        start_step=start_step,
        input_options=INPUT_OPTIONS.get(name),
        **TRAINING,
    )
    iterator = iter(training)
    for _ in range(steps) if steps else itertools.count():
        assert show_step("training", iterator) == TRAINING["global_batch_size"]
    evaluation = make_evaluation_dataset(strategy, directory, **EVALUATION)
    iterator = iter(evaluation.dataset)
    for number in range(EVALUATIONS):  # the dataset begins anew each time
        kind = f"evaluation {number}"
        records = sum(show_step(kind, iterator) for _ in range(evaluation.steps))
        assert records == load_info(directory).records("train")


def coordinate(directory: str, *, steps: int) -> None:
    """The coordinator of a ParameterServerStrategy: trains until it has had the first `steps`."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

    @tf.function
    def next_batch(iterator: Any) -> Any:
        return strategy.run(lambda each: each, (next(iterator),))

    def batches(dataset: Any) -> Iterator[dict[str, Any]]:
        iterator = iter(coordinator.create_per_worker_dataset(dataset))
        for _ in range(MOST_ROUNDS):
            values = [coordinator.schedule(next_batch, (iterator,)) for _ in range(4)]
            coordinator.join()
            for value in values:
                yield {name: tf.constant(each) for name, each in value.fetch().items()}

    missing = set(range(steps))
    for batch in batches(lambda: make_distributed_dataset(strategy, directory, **TRAINING)):
        show(PARAMETER_SERVER, "training", [batch])
        missing.discard(int(batch["step"][0]))
        if not missing:
            break
    records = load_info(directory).records("train")
    for batch in batches(make_evaluation_dataset(strategy, directory, **EVALUATION).dataset):
        show(PARAMETER_SERVER, "evaluation 0", [batch])
        records -= int(tf.reduce_sum(batch["weight"]))
        if not records:
            break


def serve() -> None:
    """A worker or parameter server, until the process is killed."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    ).join()


def main() -> None:
    """Runs the strategies that are named, in turn; or serves, if none is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("strategies", nargs="*")
    parser.add_argument("--start-step", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    signal.alarm(TIME_LIMIT_S)  # the process ends, whatever happens to the test
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * DEVICES
    tf.config.set_logical_device_configuration(cpu, devices)
    if not options.strategies:
        serve()
    for name in options.strategies:
        if name == PARAMETER_SERVER:
            coordinate(options.directory, steps=options.steps)
        else:
            train_and_evaluate(
                name, options.directory, start_step=options.start_step, steps=options.steps
            )


if __name__ == "__main__":
    main()
