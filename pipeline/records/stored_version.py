"""Checks in a graph that a directory still holds the version that is read.

Bytes that TensorFlow reads may be those of a dataset that was built in place of the one whose index
and vocabularies are in memory: its batches would not be those of the plan, and its label ids would
mean other names. A build deletes COMPLETED before it touches any other file, so bytes that were
read before COMPLETED still named the version are those of the version.
"""

import glob
import os
import re
from typing import NamedTuple, Self

import tensorflow as tf

from pipeline.records.info import NEWEST, DatasetInfo, say_built_anew, say_ended, say_gone
from schemas.file_names import COMPLETED


class StoredVersion(NamedTuple):
    """A version of a directory; string [], so that a graph may be traced once for all.

    Attributes:
      path: COMPLETED.
      path_pattern: glob pattern of this file.
      names_version: regular expression of a COMPLETED that names the version.
      names_end: the same of one that says that the version has ended.
      gone: sentence for a directory without COMPLETED.
      ended: sentence for a version that has ended.
      built_anew: sentence for another dataset.
      ended_or_built_anew: sentence for one of these two.
    """

    path: tf.Tensor
    path_pattern: tf.Tensor
    names_version: tf.Tensor
    names_end: tf.Tensor
    gone: tf.Tensor
    ended: tf.Tensor
    built_anew: tf.Tensor
    ended_or_built_anew: tf.Tensor

    @classmethod
    def of(cls, info: DatasetInfo) -> Self:
        """Makes the tensors of a version."""
        path = os.path.join(info.data_dir, COMPLETED)
        values = (
            path,
            glob.escape(path),
            f"(?s).*{re.escape(info.manifest_sha256)}.*",
            rf'(?s).*"ended":\s*\[[^\]]*\b{info.version}\b.*',
            say_gone(info.data_dir),
            say_ended(info),
            say_built_anew(info),
            f"{info.data_dir}: version {info.version} has ended, as receipts in it had to be "
            f"forgotten, or another dataset was built in its place: {NEWEST}",
        )
        return cls(*(tf.constant(value) for value in values))

    def check(self) -> tf.Operation:
        """Fails unless COMPLETED names the version; where there is none, by TensorFlow's error."""
        is_named = tf.strings.regex_full_match(tf.io.read_file(self.path), self.names_version)
        # Not `tf.debugging.Assert`: its `tf.cond` costs more than all else here, at each batch.
        return tf.raw_ops.Assert(condition=is_named, data=[self.ended_or_built_anew])

    def why_replaced(self) -> tf.Tensor:
        """Explains why the directory no longer holds the version, string []; "" if it does."""
        # A graph can't ask whether a file is there, but it can list those of a pattern.
        is_there = tf.size(tf.io.matching_files(self.path_pattern)) > 0
        return tf.cond(is_there, self._why_not_named, lambda: self.gone)

    def _why_not_named(self) -> tf.Tensor:
        completed = tf.io.read_file(self.path)
        return tf.case(
            [
                (tf.strings.regex_full_match(completed, self.names_version), lambda: ""),
                (tf.strings.regex_full_match(completed, self.names_end), lambda: self.ended),
            ],
            default=lambda: self.built_anew,
        )
