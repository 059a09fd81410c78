"""The number of backup workers that a cluster can have."""

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from pipeline.records.info import load_info
from pipeline.training.backup_workers import check_backup_workers
from pipeline.training.options import TrainOptions
from pipeline.training.trainer import Trainer
from tests.support.tiny_task import TinyTask


@pytest.mark.parametrize("backups", [0, 1, 3])
def test_numbers_that_fit(backups: int):
    options = TrainOptions(global_batch_size=24, accumulate=2, backup_workers=backups)
    check_backup_workers(options, workers=4, devices=1)


@pytest.mark.parametrize(
    ("backups", "devices", "sentence"),
    [
        (4, 1, "backup_workers 4 leaves no worker to wait for, .* 4: choose 0 to 3"),
        (1, 2, "backup_workers 1 needs workers with one device each, and they have 2"),
        (2, 1, "global_batch_size 30 can't be divided by the 2 workers .* a multiple of 4"),
    ],
)
def test_numbers_that_do_not_fit(backups: int, devices: int, sentence: str):
    options = TrainOptions(global_batch_size=30, accumulate=2, backup_workers=backups)
    with pytest.raises(ValueError, match=sentence):
        check_backup_workers(options, workers=4, devices=devices)


def test_other_strategies_have_none(directory: Path):
    with pytest.raises(ValueError, match="backup_workers 0 needs parameter servers"):
        Trainer(
            TinyTask(),
            tf.distribute.get_strategy(),
            load_info(directory),
            TrainOptions(global_batch_size=8, backup_workers=0),
        )
