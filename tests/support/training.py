"""A training loop as plain as can be, for tests of tasks."""

from pathlib import Path

import keras
import tensorflow as tf

from pipeline.augmentation.chain import views_as_examples
from pipeline.dataset import make_dataset
from pipeline.records.info import load_info
from pipeline.tasks.base import Task


def train(
    task: Task, directory: Path, *, steps: int, batch_size: int = 8, learning_rate: float = 1e-3
) -> tuple[keras.Model, list[float], dict[str, float]]:
    """The trained model, the loss of each step, and the metrics' means at the last one."""
    keras.utils.set_random_seed(0)
    info = load_info(directory)
    model = task.build(info)
    optimizer = keras.optimizers.Adam(learning_rate)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        with tf.GradientTape() as tape:
            outputs = model(views_as_examples(batch["image"]), training=True)
            losses = task.loss(outputs, batch)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        means = {}
        for name, metric in task.metrics(outputs, batch).items():
            values, weights = (
                metric if isinstance(metric, tuple) else (metric, tf.ones_like(losses))
            )
            for tensor in (losses, values, weights):
                assert tensor.shape == (batch_size,)
                assert tensor.dtype == tf.float32
            means[name] = tf.reduce_sum(values * weights) / tf.reduce_sum(weights)
        return loss, means

    dataset = make_dataset(directory, global_batch_size=batch_size, config=task.inputs(info))
    made = [step(batch) for batch in dataset.take(steps)]
    assert made
    return (
        model,
        [float(loss) for loss, _ in made],
        {name: float(each) for name, each in made[-1][1].items()},
    )
