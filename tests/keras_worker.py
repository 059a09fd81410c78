"""A process that evaluates and fits a Keras model under strategies, and prints what came of it."""

import json
import signal
import sys

import keras
import numpy as np
import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.dataset import make_distributed_dataset, make_evaluation_dataset

CONFIG = InputConfig(height=12, width=8, channels=1, sample_weights=True)
CLASSES = 4
GLOBAL_BATCH_SIZE = 16
STEPS_PER_EPOCH, EPOCHS = 3, 2
TIME_LIMIT_S = 240


def initial_weights() -> list[np.ndarray]:
    """Kernel and bias of the model."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=(12 * 8, CLASSES)) / 10, rng.normal(size=CLASSES)]


def make_model() -> keras.Model:
    layers = [keras.Input((12, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(CLASSES)]
    model = keras.Sequential(layers)
    model.set_weights(initial_weights())
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[
            keras.metrics.SparseCategoricalCrossentropy(name="weighted_loss", from_logits=True)
        ],
    )
    return model


def evaluate_and_fit(strategy: tf.distribute.Strategy, directory: str) -> dict:
    options = {"split": "train", "global_batch_size": GLOBAL_BATCH_SIZE, "config": CONFIG}
    with strategy.scope():
        model = make_model()
    dataset, steps = make_evaluation_dataset(strategy, directory, **options)
    evaluation = model.evaluate(dataset, steps=steps, verbose=0, return_dict=True)
    history = model.fit(
        make_distributed_dataset(strategy, directory, **options),
        steps_per_epoch=STEPS_PER_EPOCH,
        epochs=EPOCHS,
        verbose=0,
    )
    return {
        "evaluation": evaluation,
        "steps": int(model.optimizer.iterations.numpy()),
        "losses": history.history["loss"],
        "kernel": model.get_weights()[0].tolist(),
    }


def main() -> None:
    signal.alarm(TIME_LIMIT_S)  # the process ends, whatever happens to the test
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    for name, strategy in (
        ("default", tf.distribute.get_strategy()),
        ("one device", tf.distribute.OneDeviceStrategy("CPU:1")),
        ("mirrored", tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])),
    ):
        print(json.dumps({"strategy": name, **evaluate_and_fit(strategy, sys.argv[1])}))


if __name__ == "__main__":
    main()
