"""Sentences about records that can't be read: the same ones from every reader."""

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.records.files import reason
from pipeline.records.info import GONE, NEWEST, VERIFY, DatasetInfo, say_gone, why_replaced
from pipeline.records.stored_shards import ReplacedError
from schemas.file_names import COMPLETED
from schemas.index import RecordIndex

if TYPE_CHECKING:
    import tensorflow as tf

EXCLUDE = (
    "python -m beam_jobs.verify tells what is wrong with it, and with --exclude leaves out all "
    "that is damaged, records of a missing shard too; pipeline.train then goes on with --other-data"
)
RESUME = "make the dataset again, with start_step; pipeline.train goes on from its last checkpoint"
DENIED = "let this user read it, as by chmod or the options of the mount"
OPEN_FILES = "raise the limit of open files, as by ulimit -n, or keep fewer files open"
STORAGE = f"see to the disk or the mount, and {RESUME}"
_REMEDIES = {
    errno.EMFILE: OPEN_FILES,
    errno.ENFILE: OPEN_FILES,
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
    errno.ENOENT: EXCLUDE,
    errno.ENOTDIR: EXCLUDE,
}
_ENDS = (VERIFY, EXCLUDE, RESUME, GONE, NEWEST)
_SENTENCE = re.compile(
    rf"assertion failed: \[(.*?(?:{'|'.join(map(re.escape, _ENDS))}))\]", re.DOTALL
)
# TensorFlow's words for an error of the file system: "/data/receipts/COMPLETED; Not a directory".
_FILE_ERROR = re.compile(
    rf"(?:^|\}}\}} |: )((?:/|\w+://)[^\n]*?(?:\.tfrecord|/{COMPLETED})); ([^\n\[]+)"
)


def explain(
    info: DatasetInfo, path: str, index_path: str, offset: int, error: OSError | ValueError
) -> str:
    """Explains why the record at a byte of a local shard can't be read; its index has its id."""
    if isinstance(error, ReplacedError):
        return str(error)
    if isinstance(error, FileNotFoundError) and (replaced := why_replaced(info)):
        return replaced
    record = _name_record(index_path, offset)
    return f"{path}: {record} at byte {offset} cannot be read: {_fault_and_remedy(error)}"


def explain_file(info: DatasetInfo, path: str, error: OSError | ValueError) -> str:
    """Explains why a local shard can't be read."""
    if replaced := why_replaced(info):
        return replaced
    return f"{path} cannot be read: {_fault_and_remedy(error)}"


def _fault_and_remedy(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return f"{reason(error)}; {_REMEDIES.get(error.errno or 0, STORAGE)}"
    return f"{error}; {EXCLUDE}"


def _name_record(index_path: str, offset: int) -> str:
    try:
        index = RecordIndex.from_bytes(Path(index_path).read_bytes())
    except (OSError, ValueError):
        return "the record"
    rows = np.flatnonzero(index.offset == offset)
    return f"record {index.id(int(rows[0]))}" if len(rows) else "the record"


def read_failure_in(error: "tf.errors.OpError") -> str | None:
    """Returns the sentence about a record that can't be read, None for any other error.

    TensorFlow wraps it in the names of its operations.
    """
    if sentence := _SENTENCE.search(error.message):
        return sentence[1]
    if not (of_file := _FILE_ERROR.search(error.message)):
        return None
    path, fault = of_file[1], of_file[2].strip()
    if path.endswith(COMPLETED) and fault == os.strerror(errno.ENOENT):
        return say_gone(path.removesuffix(f"/{COMPLETED}"))
    remedies = {os.strerror(number): remedy for number, remedy in _REMEDIES.items()}
    return f"{path} cannot be read: {fault}; {remedies.get(fault, STORAGE)}"
