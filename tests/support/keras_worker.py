"""A process that trains a Keras model with Keras' own loop, and prints what came of it.

TF_CONFIG says which worker of a cluster it is, if of any.
"""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.dataset import make_distributed_dataset, make_evaluation_dataset
from pipeline.training.keras_fit import EpochCheckpoints, MultiWorkerModel

CONFIG = InputConfig(height=12, width=8, channels=1, sample_weights=True)
CLASSES = 4
GLOBAL_BATCH_SIZE = 16
OPTIONS = {"split": "train", "global_batch_size": GLOBAL_BATCH_SIZE, "config": CONFIG}
STEPS_PER_EPOCH, EPOCHS = 3, 3
TIME_LIMIT_S = 240


def initial_weights() -> list[np.ndarray]:
    """Kernel and bias of the model."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=(12 * 8, CLASSES)) / 10, rng.normal(size=CLASSES)]


def make_model() -> keras.Model:
    image = keras.Input((12, 8, 1))
    logits = keras.layers.Dense(CLASSES)(keras.layers.Flatten()(image))
    model = MultiWorkerModel(image, logits)
    model.set_weights(initial_weights())
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[
            keras.metrics.SparseCategoricalCrossentropy(name="weighted_loss", from_logits=True)
        ],
    )
    return model


def evaluate_fit_and_predict(strategy: tf.distribute.Strategy, directory: str) -> dict:
    with strategy.scope():
        model = make_model()
    dataset, steps = make_evaluation_dataset(strategy, directory, **OPTIONS)
    evaluation = model.evaluate(dataset, steps=steps, verbose=0, return_dict=True)
    history = model.fit(
        make_distributed_dataset(strategy, directory, **OPTIONS),
        steps_per_epoch=STEPS_PER_EPOCH,
        epochs=EPOCHS,
        validation_data=dataset,
        validation_steps=steps,
        verbose=0,
    ).history
    return {
        "evaluation": evaluation,
        "steps": int(model.optimizer.iterations.numpy()),
        "losses": history["loss"],
        "validation": history["val_weighted_loss"],
        "weights": [each.tolist() for each in model.get_weights()],
        "predictions": model.predict(dataset, steps=steps, verbose=0).tolist(),
    }


def fit_and_resume(strategy: tf.distribute.Strategy, directory: str, run_dir: Path) -> dict:
    """Stops after an epoch; another model goes on."""
    started_at = []
    for epochs in (1, EPOCHS):
        with strategy.scope():
            model = make_model()
        checkpoints = EpochCheckpoints(model, run_dir)
        started_at.append(checkpoints.step)
        model.fit(
            make_distributed_dataset(strategy, directory, start_step=checkpoints.step, **OPTIONS),
            steps_per_epoch=STEPS_PER_EPOCH,
            initial_epoch=checkpoints.step // STEPS_PER_EPOCH,
            epochs=epochs,
            callbacks=[checkpoints],
            verbose=0,
        )
    weights = [each.tolist() for each in model.get_weights()]
    return {"started_at": started_at, "resumed_weights": weights}


def main() -> None:
    """Runs the strategy of TF_CONFIG, or those of one process in turn."""
    signal.alarm(TIME_LIMIT_S)  # the process ends, whatever happens to the test
    directory, run_dir = sys.argv[1:]
    if json.loads(os.environ["TF_CONFIG"]):
        strategies = {"multi-worker": tf.distribute.MultiWorkerMirroredStrategy()}
    else:
        cpu = tf.config.list_physical_devices("CPU")[0]
        devices = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, devices)
        strategies = {
            "default": tf.distribute.get_strategy(),
            "one device": tf.distribute.OneDeviceStrategy("CPU:1"),
            "mirrored": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
        }
    for name, strategy in strategies.items():
        found = evaluate_fit_and_predict(strategy, directory)
        if strategy.num_replicas_in_sync > 1:
            found |= fit_and_resume(strategy, directory, Path(run_dir))
        print(json.dumps({"strategy": name, **found}), flush=True)


if __name__ == "__main__":
    main()
