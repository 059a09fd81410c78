"""A loop for ParameterServerStrategy: `python docs/parameter_server_loop.py DATA_DIR STEPS`.

Keras' `fit` does not support that strategy. Run this in every process that TF_CONFIG names.
`python -m pipeline.train` has all of it, and checkpoints, evaluation and lost workers as well.
"""

import sys

import keras
import tensorflow as tf

from tillroll import InputConfig, load_info, make_distributed_dataset

CONFIG = InputConfig(height=32, width=32, channels=1)
GLOBAL_BATCH_SIZE = 16


def train(strategy, data_dir, steps):
    """Has the workers take steps; returns their losses."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        layers = [
            keras.Input((CONFIG.height, CONFIG.width, CONFIG.channels)),
            keras.layers.Flatten(),
            keras.layers.Dense(len(load_info(data_dir).layouts)),
        ]
        model = keras.Sequential(layers)
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)  # a worker can't create variables
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def replica_step(batch):
        images, labels = batch
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(batches):
        return strategy.run(replica_step, (next(batches),))

    def make_dataset():
        return make_distributed_dataset(
            strategy, data_dir, global_batch_size=GLOBAL_BATCH_SIZE, config=CONFIG
        )

    batches = iter(coordinator.create_per_worker_dataset(make_dataset))
    losses = [coordinator.schedule(step, (batches,)) for _ in range(steps)]
    coordinator.join()  # until the workers have taken all steps
    return [float(loss.fetch()) for loss in losses]


def main():
    """Trains, as the chief; serves, as a worker or a parameter server."""
    data_dir, steps = sys.argv[1:]
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        cluster, kind = resolver.cluster_spec(), resolver.task_type
        tf.distribute.Server(cluster, job_name=kind, task_index=resolver.task_id).join()
    print(train(tf.distribute.ParameterServerStrategy(resolver), data_dir, int(steps)))


if __name__ == "__main__":
    main()
