"""A plain tf.data loop over image files with a SavedModel: what a team writes by hand.

`python -m benchmarks.harness.predict_loop MODEL TABLE OUTPUT BATCH_SIZE` reads the files that a
table names, and writes a line of JSON for each.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf


def main(model: str, table: str, output: str, batch_size: str) -> None:
    """Predicts all images of a table."""
    rows = [json.loads(line) for line in Path(table).read_text().splitlines()]
    paths = [str(Path(table).parent / row["image"]) for row in rows]
    loaded = tf.saved_model.load(model)
    signature = loaded.signatures["serving_default"]
    [name] = signature.structured_input_signature[1]
    batches = (
        tf.data.Dataset.from_tensor_slices(paths)
        .map(tf.io.read_file, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(int(batch_size))
        .prefetch(tf.data.AUTOTUNE)
    )
    remaining = iter(rows)
    with Path(output).open("w") as file:
        for batch in batches:
            found = {key: each.numpy() for key, each in signature(**{name: batch}).items()}
            for number in range(len(batch)):
                values = {key: _plain(each[number]) for key, each in found.items()}
                file.write(json.dumps({"id": next(remaining)["id"], **values}) + "\n")


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value.tolist()


if __name__ == "__main__":
    main(*sys.argv[1:])
