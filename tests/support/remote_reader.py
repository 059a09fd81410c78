"""Reads datasets, wherever they lie: `DATA_DIR...`, a JSON line for each.

The exit status is how many could not be read.
"""

import hashlib
import json
import sys
from typing import Any

import tensorflow as tf

from pipeline.config import InputConfig, Reading
from pipeline.dataset import make_dataset, make_evaluation_dataset

RUN_LENGTHS = (1, 8)


def read_batches(data_dir: str) -> dict[str, list[dict[str, Any]]]:
    """Ids, weights and digests of the pixels: some epochs of training, and an evaluation."""
    found = {}
    for block_length in RUN_LENGTHS:
        config = InputConfig(
            height=24,
            width=16,
            features=("id", "image"),
            reading=Reading(block_length=block_length),
        )
        training = make_dataset(data_dir, global_batch_size=16, config=config)
        found[f"training, block_length {block_length}"] = [told(each) for each in training.take(10)]
    evaluation = make_evaluation_dataset(
        tf.distribute.get_strategy(), data_dir, split="train", global_batch_size=24, config=config
    )
    found["evaluation"] = [told(each) for each in evaluation.dataset.take(evaluation.steps)]
    return found


def told(batch: dict[str, tf.Tensor]) -> dict[str, Any]:
    """Returns the part of a batch that is compared."""
    values = {name: each.numpy() for name, each in batch.items()}
    images = values.pop("image")
    lists = {name: each.astype(str).tolist() for name, each in values.items()}
    return {**lists, "image": [hashlib.sha256(each.tobytes()).hexdigest() for each in images]}


if __name__ == "__main__":
    failed = 0
    for directory in sys.argv[1:]:
        try:
            line: dict[str, Any] = {"batches": read_batches(directory)}
        except (ValueError, FileNotFoundError, tf.errors.InvalidArgumentError) as error:
            failed += 1
            line = {"error": str(error)}
        print(json.dumps(line), flush=True)
    sys.exit(failed)
