"""Sentences about records that can't be read: the reason, and what to do."""

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.records.info import GONE, NEWEST, load_info
from pipeline.records.read_failure import (
    DENIED,
    EXCLUDE,
    OPEN_FILES,
    STORAGE,
    explain,
    read_failure_in,
)
from tests.support.dataset_files import INDEX, SHARD, offset_of

REMEDIES = {
    errno.EMFILE: OPEN_FILES,
    errno.ENFILE: OPEN_FILES,
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
    errno.ENOENT: EXCLUDE,
    errno.EIO: STORAGE,
    errno.ESTALE: STORAGE,
}


@pytest.mark.parametrize("number", REMEDIES, ids=errno.errorcode.get)
def test_an_error_of_the_file_system_is_told_with_what_to_do(directory: Path, number: int):
    path, offset = str(directory / SHARD), offset_of(directory, 3)
    error = OSError(number, os.strerror(number), path)
    sentence = explain(load_info(directory), path, str(directory / INDEX), offset, error)
    assert re.fullmatch(
        rf"{re.escape(path)}: record \w+-\d+ at byte {offset} cannot be read: "
        rf"{os.strerror(number)}; {re.escape(REMEDIES[number])}",
        sentence,
    )


def test_no_wrong_id_is_named(directory: Path):
    """The index may be that of another dataset by now."""
    sentence = explain(load_info(directory), "a", str(directory / INDEX), 5, ValueError("no"))
    assert sentence == f"a: the record at byte 5 cannot be read: no; {EXCLUDE}"


def test_a_missing_file_of_a_directory_that_is_gone(directory: Path, tmp_path: Path):
    info = load_info(shutil.copytree(directory, tmp_path / "copy"))
    shutil.rmtree(tmp_path / "copy")
    missing = FileNotFoundError(errno.ENOENT, "")
    sentence = explain(info, "a", "b", 0, missing)
    assert sentence == (
        f"{info.data_dir} holds no finished dataset any more (no file COMPLETED): {GONE}"
    )


class Error:
    """Stands for an error of TensorFlow."""

    def __init__(self, message: str) -> None:
        self.message = message


PREFIX = "{{function_node __wrapped__IteratorGetNext_CPU:0}} "
NODE = "\n\t [[{{node ReadFile}}]] [Op:IteratorGetNext] name: "


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            f"{PREFIX}assertion failed: [/d: version 1 has ended: {NEWEST}]{NODE}",
            f"/d: version 1 has ended: {NEWEST}",
        ),
        (
            f"{PREFIX}/d [x]/a.tfrecord; Permission denied{NODE}",
            f"/d [x]/a.tfrecord cannot be read: Permission denied; {DENIED}",
        ),
        (
            f"{PREFIX}Error in user-defined function passed to ParallelMapDatasetV2:9 "
            "transformation with iterator: Iterator::Root::Scan: /d/a.tfrecord; "
            f"Too many open files{NODE}",
            f"/d/a.tfrecord cannot be read: Too many open files; {OPEN_FILES}",
        ),
        (
            "gs://b/a.tfrecord; Input/output error",
            f"gs://b/a.tfrecord cannot be read: Input/output error; {STORAGE}",
        ),
        (
            f"{PREFIX}Iterator::Root: /d/COMPLETED; No such file or directory{NODE}",
            f"/d holds no finished dataset any more (no file COMPLETED): {GONE}",
        ),
        (f"{PREFIX}assertion failed: [Condition x == y did not hold]{NODE}", None),
        ("/d/a.txt; Permission denied", None),
    ],
)
def test_sentences_are_found_in_errors_of_tensorflow(message: str, sentence: str | None):
    error: Any = Error(message)
    assert read_failure_in(error) == sentence
