"""Reads the training records of a local dataset out of s3://receipts: `DATA_DIR PARALLEL_READS`.

Each record is a read of its own. Prints how many have come.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline.config import InputConfig, Reading
from pipeline.records.file_systems import load_file_system
from pipeline.records.info import load_info
from pipeline.records.reader import RecordReader
from pipeline.records.table import load_record_table

if __name__ == "__main__":
    data_dir, parallel_reads = sys.argv[1:]
    load_file_system("s3://receipts")
    info = load_info(data_dir)
    table = load_record_table(info, "train", InputConfig(height=8, width=8))
    table = replace(table, paths=[f"s3://receipts/{Path(path).name}" for path in table.paths])
    reading = Reading(parallel_reads=int(parallel_reads))
    reader = RecordReader(info, table, reading, mean_bytes=1000)
    numbers = tf.data.Dataset.from_tensors(np.arange(len(table)))
    records = reader.read(numbers, batch_size=len(table), block_length=1)
    print(sum(1 for _ in records))
