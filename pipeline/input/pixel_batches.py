"""Batches of raw pixels that this process copies out of local files."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.config import InputConfig
from pipeline.input.decode import raw_images, raw_shape
from pipeline.input.features import MADE_FEATURES, stored_feature
from pipeline.input.python_calls import PythonFunction
from pipeline.records.files import is_remote
from pipeline.records.info import DatasetInfo
from pipeline.records.pixel_reader import PixelReader, UnreadableRecordError
from pipeline.records.table import RecordTable
from schemas.receipt import id_feature

_PARALLEL_READS = 2  # batches: while one waits for Python's global lock, the other is copied


def why_parsed(info: DatasetInfo, config: InputConfig) -> str | None:
    """Tells why records must be parsed by TensorFlow; None where pixels can be copied.

    This is the only place where that is decided.
    """
    categories = [id_feature(name) for name in info.manifest.vocabularies]
    names = [name for name in config.features or () if name not in MADE_FEATURES]
    parsed = [name for name in names if not {*stored_feature(name, info, config)} <= {*categories}]
    reasons = {
        "images are stored as JPEG files": raw_shape(info) is None,
        "the directory is not local": is_remote(info.data_dir),
        "images are cropped": config.crop is not None,
        "neighbors are read together": config.reading.block_length > 1,
        "the size of requests is given": config.reading.buffer_bytes is not None,
        "the dataset is portable": config.reading.portable,
        # As for ParameterServerStrategy, whose workers run the graph that the chief makes.
        "the dataset is made in a graph": not tf.executing_eagerly(),
        f"the index has no feature {', '.join(parsed)}": bool(parsed),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def load_pixel_reader(
    info: DatasetInfo, split: str, table: RecordTable, config: InputConfig
) -> PixelReader | None:
    """Loads the reader that copies pixels; None where records must be parsed."""
    shape = raw_shape(info)
    if shape is None or why_parsed(info, config):
        return None
    wanted = {config.label, config.balance.by, *(config.features or ())}
    return PixelReader.load(
        info,
        split,
        table,
        categories=[name for name in info.manifest.vocabularies if {name, f"{name}_id"} & wanted],
        shape=shape,
        verify=config.reading.verify,
    )


def pixel_batches(
    reader: PixelReader,
    numbers: tf.data.Dataset,
    info: DatasetInfo,
    config: InputConfig,
    names: Sequence[str],
    *,
    batch_size: int,
) -> tf.data.Dataset:
    """Copies the pixels of batches, and fits them into the size of the options.

    Args:
      reader: the reader of the records.
      numbers: numbers of the records of each batch, int64 [batch_size].
      info: the dataset.
      config: options.
      names: names in `InputConfig.features` whose stored features are wanted, all of categories.
      batch_size: records of a batch.

    Returns:
      The same as `decode.decode_batches`: pairs of images, uint8 [batch_size, height, width,
      channels], and a dict of stored features, int64 [batch_size]. A record that can't be read
      raises the same error.
    """
    columns = sorted({column for name in names for column in stored_feature(name, info, config)})
    empty = np.zeros([0, *reader.shape], np.uint8)

    def read(numbers: npt.NDArray[np.int64]) -> list[object]:
        try:
            pixels, categories = reader.read(numbers)
        except UnreadableRecordError as error:
            # An exception would come wrapped in Python's traceback, see `read_failure_in`.
            return [str(error).encode(), empty, *(np.zeros(0, np.int64) for _ in columns)]
        values = {id_feature(name): ids for name, ids in categories.items()}
        return [b"", pixels, *(values[column] for column in columns)]

    function = PythonFunction(read)  # the dataset holds it, by `copy`

    def copy(numbers: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        dtypes = [tf.string, tf.uint8, *(tf.int64 for _ in columns)]
        failure, *made = function.call([numbers], dtypes)
        with tf.control_dependencies([tf.debugging.Assert(tf.equal(failure, ""), [failure])]):
            pixels, *ids = (tf.identity(each) for each in made)
        images = raw_images(tf.ensure_shape(pixels, [batch_size, *reader.shape]), config)
        values = [tf.ensure_shape(each, [batch_size]) for each in ids]
        return images, dict(zip(columns, values, strict=True))

    calls = config.reading.parallel_reads or _PARALLEL_READS
    return numbers.map(copy, num_parallel_calls=calls, deterministic=True)
