"""Sentences about records that can't be read: the same ones from every reader."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from schemas.index import RecordIndex

if TYPE_CHECKING:
    import tensorflow as tf

EXCLUDE = (
    "python -m beam_jobs.verify tells what is wrong with it, and with --exclude leaves out all "
    "that is damaged, records of a missing shard too; pipeline.train then goes on with --other-data"
)
RESUME = "make the dataset again, with start_step; pipeline.train goes on from its last checkpoint"
ENDED = (
    "is missing: if receipts had to be forgotten, this version of the dataset has ended; the "
    "newest one has the others, and pipeline.train goes on with it by --other-data. If not, python "
    "-m beam_jobs.verify tells what is wrong"
)
_SENTENCE = re.compile(
    rf"assertion failed: \[(.*?(?:{'|'.join(map(re.escape, (EXCLUDE, RESUME, ENDED)))}))\]",
    re.DOTALL,
)


def explain(path: str, index_path: str, offset: int) -> str:
    """Explains that the record at a byte of a local shard can't be read; its index has its id."""
    try:
        index = RecordIndex.from_bytes(Path(index_path).read_bytes())
    except FileNotFoundError:
        return f"{index_path} {ENDED}"
    except (OSError, ValueError):
        named = "the record"
    else:
        named = f"record {index.id(int(np.argmax(index.offset == offset)))}"
    return f"{path}: {named} at byte {offset} cannot be read; {EXCLUDE}"


def read_failure_in(error: "tf.errors.OpError") -> str | None:
    """Returns the sentence about a record that can't be read, None for any other error.

    TensorFlow wraps it in the names of its operations.
    """
    found = _SENTENCE.search(error.message)
    return found and found[1]
