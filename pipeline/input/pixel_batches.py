"""Raw pixels of whole batches, cut by TensorFlow's operations out of local shards in memory."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.input.decode import raw_images, raw_shape
from pipeline.input.features import MADE_FEATURES, stored_feature
from pipeline.records.files import is_remote
from pipeline.records.info import DatasetInfo
from pipeline.records.mapped_shards import map_shards
from pipeline.records.reader import shared
from pipeline.records.table import RecordTable, read_index
from schemas.raw_pixels import PIXELS_START, are_aligned
from schemas.receipt import id_feature


def why_parsed(info: DatasetInfo, config: InputConfig) -> str | None:
    """Tells why records must be parsed; None where pixels are cut out of memory.

    This is the only place where that is decided.
    """
    categories = [id_feature(name) for name in info.manifest.vocabularies]
    names = [name for name in config.features or () if name not in MADE_FEATURES]
    parsed = [name for name in names if not {*stored_feature(name, info, config)} <= {*categories}]
    reasons = {
        "images are stored as JPEG files": raw_shape(info) is None,
        "the directory is not local": is_remote(info.data_dir),
        "an older version built it: run python -m beam_jobs.compact": not are_aligned(
            info.manifest
        ),
        "images are cropped": config.crop is not None,
        "neighbors are read together": config.reading.block_length > 1,
        "the size of requests is given": config.reading.buffer_bytes is not None,
        "the dataset is portable": config.reading.portable,
        # As for ParameterServerStrategy, whose workers run the graph that the chief makes.
        "the dataset is made in a graph": not tf.executing_eagerly(),
        f"the index has no feature {', '.join(parsed)}": bool(parsed),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


@dataclass(frozen=True, kw_only=True, eq=False)
class MappedPixels:
    """Pixels of one size and categories of the records of a table.

    Attributes:
      shape: (height, width, channels) of the stored pixels.
      shards: variant [], a list of one tensor, the bytes of all shards, uint8 [bytes]. As an input
        of a function of tf.data the tensor itself would not do: for each iterator, TensorFlow makes
        zeros of the shape of each input, here of the size of the dataset.
      shard_starts: int64 [shards], positions of the first bytes of the shards.
      shard_ends: int64 [shards], `RecordTable.shard_ends`.
      offset, order: tensors of the table.
      ids: name of the stored feature to the category of each record, int32 [records], shard by
        shard.
    """

    shape: tuple[int, int, int]
    shards: tf.Tensor
    shard_starts: tf.Tensor
    shard_ends: tf.Tensor
    offset: tf.Tensor
    order: tf.Tensor | None
    ids: dict[str, tf.Tensor]

    def read(
        self, numbers: tf.Tensor, columns: Collection[str], config: InputConfig, *, batch_size: int
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Reads a batch of records by their numbers in the table, int64 [batch_size].

        Returns:
          The same as `decode.decode_batches`: images, uint8 [batch_size, height, width, channels],
          and stored features by their names, int64 [batch_size].
        """
        position = numbers if self.order is None else tf.gather(self.order, numbers)
        shard = tf.searchsorted(self.shard_ends, tf.cast(position, tf.int64), side="right")
        first = tf.gather(self.shard_starts, shard) + tf.gather(self.offset, position)
        # A slice shares the memory of its tensor if it begins and ends at a multiple of 64 bytes,
        # so that stacking the slices copies the pixels for the first time.
        begins = tf.unstack(first[:, None] + PIXELS_START, num=batch_size)
        size = tf.constant([np.prod(self.shape)], tf.int64)
        memory = tf.raw_ops.TensorListGetItem(
            input_handle=self.shards, index=0, element_shape=[-1], element_dtype=tf.uint8
        )
        slices = [tf.raw_ops.Slice(input=memory, begin=begin, size=size) for begin in begins]
        pixels = tf.raw_ops.Pack(values=slices)
        if batch_size == 1:  # the stack is the memory of the file itself
            pixels = tf.bitwise.bitwise_or(pixels, tf.zeros([], tf.uint8))
        images = raw_images(tf.reshape(pixels, [batch_size, *self.shape]), config)
        ids = {name: tf.cast(tf.gather(self.ids[name], position), tf.int64) for name in columns}
        return images, ids


def load_pixels(
    info: DatasetInfo, split: str, table: RecordTable, config: InputConfig
) -> MappedPixels | None:
    """Maps the shards of a split; None where records must be parsed.

    Raises:
      ValueError: as `map_shards` does.
    """
    shape = raw_shape(info)
    if shape is None or why_parsed(info, config):
        return None
    wanted = {config.label, config.balance.by, *(config.features or ())}
    names = [name for name in info.manifest.vocabularies if {name, f"{name}_id"} & wanted]
    _, ids = read_index(info, split, {f"category/{name}": np.int32 for name in names})
    memory, starts = map_shards(info, table.paths, verify=config.reading.verify)
    with tf.device("CPU"):
        shards = tf.raw_ops.TensorListReserve(
            element_shape=[-1], num_elements=1, element_dtype=tf.uint8
        )
        return MappedPixels(
            shape=shape,
            shards=tf.raw_ops.TensorListSetItem(input_handle=shards, index=0, item=shared(memory)),
            shard_starts=tf.constant(starts),
            shard_ends=tf.constant(table.shard_ends),
            offset=shared(table.offset),
            order=None if table.order is None else shared(table.order),
            ids={id_feature(name): shared(ids[f"category/{name}"]) for name in names},
        )
