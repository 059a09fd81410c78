"""Trains with Keras' own loop: `python docs/keras_fit.py DATA_DIR RUN_DIR`.

Run again, it goes on after the last epoch that was finished. On several workers, run it on each of
them with TF_CONFIG set, and with a RUN_DIR on a file system that all share.
"""

import argparse

import keras

from tillroll import (
    EpochCheckpoints,
    InputConfig,
    MultiWorkerModel,
    load_info,
    make_distributed_dataset,
    make_evaluation_dataset,
    make_strategy,
)

CONFIG = InputConfig(height=64, width=64, channels=1, sample_weights=True)


def build(labels):
    """A model that works under MultiWorkerMirroredStrategy, too."""
    image = keras.Input((CONFIG.height, CONFIG.width, CONFIG.channels))
    hidden = keras.layers.Conv2D(16, 3, 2, activation="relu")(image)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    hidden = keras.layers.Dropout(0.1)(hidden)
    return MultiWorkerModel(image, keras.layers.Dense(labels)(hidden))


def main(argv=None):
    """Runs the command; returns the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data_dir")
    parser.add_argument("run_dir")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch-size", type=int, default=32)
    parser.add_argument("--evaluation-split", default="validation")
    args = parser.parse_args(argv)

    strategy = make_strategy()
    info = load_info(args.data_dir)
    options = {"global_batch_size": args.global_batch_size, "config": CONFIG}

    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = build(len(info.layouts))
        model.compile(
            keras.optimizers.Adam(),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            weighted_metrics=["accuracy"],  # averages over records: padding has weight 0
        )
    checkpoints = EpochCheckpoints(
        model, args.run_dir, info=info
    )  # before the dataset: it tells the step
    validation, validation_steps = make_evaluation_dataset(
        strategy, args.data_dir, split=args.evaluation_split, **options
    )
    dataset = make_distributed_dataset(
        strategy, args.data_dir, start_step=checkpoints.step, **options
    )
    model.fit(
        dataset,
        steps_per_epoch=dataset.steps_per_epoch,
        initial_epoch=checkpoints.step // dataset.steps_per_epoch,
        epochs=args.epochs,
        validation_data=validation,
        validation_steps=validation_steps,
        callbacks=[checkpoints, keras.callbacks.TerminateOnNaN()],
    )
    return model


if __name__ == "__main__":
    main()
