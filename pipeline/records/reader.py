"""Records read by offset, in C++, inside the graph."""

import glob
from typing import Any, NamedTuple

import numpy.typing as npt
import tensorflow as tf

from pipeline.config import Reading
from pipeline.records.info import VERIFY, DatasetInfo
from pipeline.records.read_failure import EXCLUDE, RESUME
from pipeline.records.stored_version import StoredVersion
from pipeline.records.table import ALIGNMENT, RecordTable

_LOCAL_READS = 4  # batches: one at a time is half as fast, more are no faster
# Blocks. As TensorFlow reads ahead, up to 48 requests are under way; tensorflow-io has 25
# connections to S3.
_REMOTE_READS = 16
_REMOTE_CHECK_EVERY = 64  # batches
_INT64_BYTES = 8
_RECORD = tf.TensorSpec([], tf.string)


class ReadRequest(NamedTuple):
    """Neighboring records that are read together; int64 scalars, or vectors for many requests.

    Attributes:
      shard: position of the shard in `RecordTable.paths`.
      offset: byte at which the first record starts.
      count: number of records.
    """

    shard: tf.Tensor
    offset: tf.Tensor
    count: tf.Tensor


class RecordReader:
    """Reads the records of a table by their numbers.

    Of local files some batches are read at a time. A request to a store takes long, so there many
    are under way, each for a block of records and large enough for most.
    """

    def __init__(
        self, info: DatasetInfo, table: RecordTable, reading: Reading, *, mean_bytes: int
    ) -> None:
        self._remote = "://" in table.paths[0]
        self._parallel_reads = reading.parallel_reads or (
            _REMOTE_READS if self._remote else _LOCAL_READS
        )
        buffer_bytes = reading.buffer_bytes or (
            2 * mean_bytes * reading.block_length if self._remote else 0
        )
        with tf.device("CPU"):
            self._shards = _Shards(
                version=StoredVersion.of(info),
                paths=tf.constant(table.paths),
                patterns=tf.constant([glob.escape(path) for path in table.paths]),
                index_paths=tf.constant(table.index_paths),
                index_patterns=tf.constant([glob.escape(path) for path in table.index_paths]),
                index_starts=tf.constant(table.index_starts),
                ends=tf.constant(table.shard_ends),
                offset=shared(table.offset),
                order=None if table.order is None else shared(table.order),
                contiguous=shared(table.contiguous),
                buffer_bytes=tf.constant(buffer_bytes, tf.int64),
            )

    def read(
        self, batches: tf.data.Dataset, *, batch_size: int, block_length: int
    ) -> tf.data.Dataset:
        """Makes a dataset of serialized records, in order.

        A record that can't be read raises an error that names it.

        Args:
          batches: numbers of the records of each batch, int64 [batch_size].
          batch_size: a multiple of `block_length`.
          block_length: maximum number of records that are read together.
        """
        # A request to a store takes long, so that each block is a task of its own, and many are
        # under way. Local reads are short, and a task for each would cost more than it saves.
        task_size = block_length if self._remote else batch_size
        tasks = batches
        if task_size < batch_size:
            tasks = tasks.map(lambda numbers: tf.reshape(numbers, [-1, task_size]))
            tasks = tasks.flat_map(tf.data.Dataset.from_tensor_slices)
        in_blocks = tf.constant(block_length) if block_length > 1 else None
        parallel = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True}
        return tasks.interleave(
            lambda numbers: _records(_read, self._shards, numbers, in_blocks),
            cycle_length=self._parallel_reads,
            block_length=task_size,
            **(parallel if self._parallel_reads > 1 else {}),
        )

    def check_version(self, batch: tf.Tensor) -> tf.Operation:
        """Fails if the directory no longer holds the version, once the records were read.

        A request to a store takes long, so there only some batches are checked.

        Args:
          batch: number of the batch, int64 [].
        """
        if not self._remote:
            return self._shards.version.check()
        is_due = tf.equal(batch % _REMOTE_CHECK_EVERY, 0)
        return tf.cond(is_due, self._shards.version.check, tf.no_op)


class _Shards(NamedTuple):
    """Tensors of a `RecordTable`, and the size of reads.

    Attributes:
      version: the version of the records.
      paths: string [shards].
      patterns: glob patterns of the shards, string [shards].
      index_paths: string [shards].
      index_patterns: glob patterns of the index files, string [shards].
      index_starts: int64 [shards, 4].
      ends: int64 [shards], `RecordTable.shard_ends`.
      offset: int64 [records].
      order: int32 or int64 [records], or None.
      contiguous: bool [records], or [0] where each record is a request.
      buffer_bytes: bytes that a read asks for, int64 []; 0 for no more than it needs.
    """

    version: StoredVersion
    paths: tf.Tensor
    patterns: tf.Tensor
    index_paths: tf.Tensor
    index_patterns: tf.Tensor
    index_starts: tf.Tensor
    ends: tf.Tensor
    offset: tf.Tensor
    order: tf.Tensor | None
    contiguous: tf.Tensor
    buffer_bytes: tf.Tensor

    def requests(self, numbers: tf.Tensor, block_length: tf.Tensor | None = None) -> ReadRequest:
        """Makes the requests, as vectors, for the records with these numbers, int64 [n].

        Without a block length, int32 [], each record is a request of its own. Records 7 8 9 20 21
        in blocks of 4, where 9 does not lie right behind 8 in its file, take three requests: for 7
        and 8, for 9, and for 20 and 21.
        """
        if block_length is None:
            return self._locate(numbers, tf.ones_like(numbers))
        # A record begins a request unless it goes on where the record before ends: within a block,
        # with the next number, and with the next byte of the file.
        position = tf.range(tf.size(numbers))
        before = tf.concat([numbers[:1], numbers[:-1]], axis=0)
        goes_on = (position % block_length > 0) & (numbers == before + 1)
        begins = tf.where(~(goes_on & tf.gather(self.contiguous, numbers)))[:, 0]
        ends = tf.concat([begins[1:], [tf.size(numbers, tf.int64)]], axis=0)
        return self._locate(tf.gather(numbers, begins), ends - begins)

    def _locate(self, first: tf.Tensor, count: tf.Tensor) -> ReadRequest:
        position = first if self.order is None else tf.gather(self.order, first)
        shard = tf.searchsorted(
            self.ends, tf.cast(position, tf.int64), side="right", out_type=tf.int64
        )
        return ReadRequest(shard, tf.gather(self.offset, position), count)

    def serve(self, requests: ReadRequest) -> tf.data.Dataset:
        """Makes a dataset of the records of requests; some are missing where one can't be read."""
        paths = tf.gather(self.paths, requests.shard)
        vectors = (paths[:, None], requests.offset[:, None], requests.count)
        slices = tf.data.Dataset.from_tensor_slices(vectors)
        # With `slices.flat_map` a thread would hand each request to another and wait. Without
        # parallelism of ops, for which tf.data's methods have no option, it opens them itself.
        opened = tf.raw_ops.MapDataset(
            input_dataset=tf.data.experimental.to_variant(slices),
            other_arguments=[self.buffer_bytes],
            f=_open.get_concrete_function(*slices.element_spec, _spec(self.buffer_bytes)),
            output_types=[tf.variant],
            output_shapes=[tf.TensorShape([])],
            use_inter_op_parallelism=False,
        )
        found = tf.data.experimental.from_variant(opened, tf.TensorSpec([], tf.variant)).flat_map(
            lambda records: tf.data.experimental.from_variant(records, _RECORD)
        )
        # A file that can't be opened fails for ever, so it is asked for so many records only. This
        # is what `choose_from_datasets` does too, at six times the cost.
        asked = tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
        variant = tf.raw_ops.DirectedInterleaveDataset(
            selector_input_dataset=tf.data.experimental.to_variant(
                asked.repeat(tf.reduce_sum(requests.count))
            ),
            data_input_datasets=[tf.data.experimental.to_variant(found)],
            output_types=[tf.string],
            output_shapes=[tf.TensorShape([])],
            stop_on_empty_dataset=True,
        )
        limited = tf.data.experimental.from_variant(variant, _RECORD)
        return limited.ignore_errors(log_warning=True)

    def file_error(self, single: ReadRequest) -> tf.data.Dataset:
        """Makes an empty dataset, or TensorFlow's error where a file is there but can't be read.

        Such as "/data/receipts-train-00002.tfrecord; Permission denied". The record's own error is
        ignored in `serve`, as TensorFlow's words for damage name no file.
        """
        pattern = tf.gather(self.patterns, single.shard[0])
        path = tf.gather(self.paths, single.shard)
        paths = tf.boolean_mask(path, tf.size(tf.io.matching_files(pattern))[None] > 0)
        return (
            tf.data.FixedLengthRecordDataset(paths, record_bytes=1, buffer_size=1).take(1).skip(1)
        )

    def fail(self, single: ReadRequest) -> tf.Tensor:
        """Raises the error of a record that can't be read; its id is in the index file."""
        shard = single.shard[0]
        missing = tf.strings.join([tf.gather(self.index_paths, shard), " is missing: ", VERIFY])

        def fail_without_index() -> tf.Tensor:
            replaced = self.version.why_replaced()
            return _failure([tf.where(tf.equal(replaced, ""), missing, replaced)])

        return tf.cond(
            tf.size(tf.io.matching_files(tf.gather(self.index_patterns, shard))) > 0,
            lambda: self._fail_by_id(single),
            fail_without_index,
        )

    def _fail_by_id(self, single: ReadRequest) -> tf.Tensor:
        """Raises the error of a record, with the id from its index file."""
        # TensorFlow reads no .npz files. Their columns are not compressed, so `index_starts` says
        # at which bytes they lie.
        request = ReadRequest(*(each[0] for each in single))
        index = tf.io.read_file(tf.gather(self.index_paths, request.shard))
        records, *starts = tf.unstack(
            tf.cast(tf.gather(self.index_starts, request.shard), tf.int32), num=4
        )

        def column(start: tf.Tensor) -> tf.Tensor:
            return tf.io.decode_raw(
                tf.strings.substr(index, start, _INT64_BYTES * records), tf.int64
            )

        position = tf.argmax(tf.cast(column(starts[0]) == request.offset, tf.int32))
        # Ids lie one behind the other: ids "a" and "bc" end at 1 and 3, so "bc" is bytes 1 to 3.
        ends = tf.concat([[0], column(starts[1])], axis=0)
        begin, end = tf.cast(ends[position], tf.int32), tf.cast(ends[position + 1], tf.int32)
        return _failure(
            [
                tf.gather(self.paths, request.shard),
                ": record ",
                tf.strings.substr(index, starts[2] + begin, end - begin),
                " at byte ",
                tf.strings.as_string(request.offset),
                " cannot be read; ",
                EXCLUDE,
            ]
        )


def _records(function: Any, *arguments: Any) -> tf.data.Dataset:
    """Makes the dataset of records, string [], whose variant a tf.function returns.

    Tracing takes longer than all else that makes a dataset, and a training makes several. So the
    function is traced for tensors of any length, and once for all of them.
    """
    # Called as it is, it would count as stateful, and TensorFlow would not save iterators.
    [variant] = tf.raw_ops.PartitionedCall(
        args=[each for each in tf.nest.flatten(arguments) if each is not None],
        Tout=[tf.variant],
        f=function.get_concrete_function(*tf.nest.map_structure(_spec, arguments)),
    )
    return tf.data.experimental.from_variant(variant, _RECORD)


def _spec(tensor: tf.Tensor | None) -> tf.TensorSpec | None:
    """Returns the specification of a tensor, with sides of any length."""
    return None if tensor is None else tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype)


@tf.function(autograph=False)
def _read(shards: _Shards, numbers: tf.Tensor, block_length: tf.Tensor | None) -> tf.Tensor:
    """Makes the dataset of the records of one task, int64 [n], which lie in one batch.

    After an error some are missing. The explanation comes next, which raises an error of its
    own. So no batch in which a record is missing is ever complete.
    """
    served = shards.serve(shards.requests(numbers, block_length))
    explanation = tf.data.Dataset.from_tensors(numbers).flat_map(
        lambda numbers: _records(_explanation, shards, numbers)
    )
    records = served.concatenate(explanation).take(tf.size(numbers, tf.int64))
    return tf.data.experimental.to_variant(records)


@tf.function(autograph=False)
def _open(
    path: tf.Tensor, offset: tf.Tensor, count: tf.Tensor, buffer_bytes: tf.Tensor
) -> tf.Tensor:
    """Makes the dataset of a request's records, as a variant."""
    shard = tf.raw_ops.TFRecordDatasetV2(
        filenames=path, compression_type="", buffer_size=buffer_bytes, byte_offsets=offset
    )
    records = tf.data.experimental.from_variant(shard, _RECORD).take(count)
    return tf.data.experimental.to_variant(records)


@tf.function(autograph=False)
def _explanation(shards: _Shards, numbers: tf.Tensor) -> tf.Tensor:
    """Makes a dataset of errors: each record is read by itself, and the bad ones are named."""

    def attempt(number: tf.Tensor) -> tf.data.Dataset:
        single = shards.requests(number[None])
        named = tf.data.Dataset.from_tensors(single).map(shards.fail)
        error = shards.file_error(single).concatenate(named)
        return shards.serve(single).concatenate(error).take(1)

    def second_attempt(_: tf.Tensor) -> tf.Tensor:
        requested, _ = tf.unique(shards.requests(numbers).shard)
        paths = tf.strings.reduce_join(tf.gather(shards.paths, requested), separator=", ")
        return _failure([paths, " could be read at the second attempt only: ", RESUME])

    again = tf.data.Dataset.from_tensor_slices(numbers).flat_map(attempt)
    # An error takes its record out of this batch, which is whole only where there was none.
    all_read = again.batch(tf.size(numbers, tf.int64), drop_remainder=True)
    behind = tf.data.Dataset.from_tensors(numbers).map(
        lambda _: _failure(["an earlier record of this batch cannot be read: ", RESUME])
    )
    errors = all_read.map(second_attempt).concatenate(behind)
    return tf.data.experimental.to_variant(errors)


def shared(array: npt.NDArray[Any]) -> tf.Tensor:
    """Makes a tensor of the array's own memory: millions of records are too many to hold twice."""
    if array.ctypes.data % ALIGNMENT:  # not made by `aligned_empty`
        return tf.constant(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _failure(sentence: list[tf.Tensor | str]) -> tf.Tensor:
    """Raises the sentence, in which quotes would be escaped; the string is never made."""
    message = tf.strings.join(sentence)
    with tf.control_dependencies([tf.debugging.Assert(False, [message])]):
        return tf.identity(message)
