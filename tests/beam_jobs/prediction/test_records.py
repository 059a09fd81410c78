"""Records as rows of a prediction: the image must be the one of the row's id."""

import dataclasses
import re
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.prediction.records import RecordSource, read_record
from beam_jobs.rejection import RejectionError
from tests.support.dataset_factory import write_dataset


def test_a_record_of_another_id_is_refused(tmp_path: Path):
    """The dataset may have been built anew after its index was read."""
    directory = write_dataset(tmp_path / "data", counts={"a": 4})
    source = RecordSource(path=str(directory), version=1, splits=("train",))
    rows = [row for task in source.shards() for row in source.rows(task)]
    assert len(rows) == 4
    for row in rows:
        assert read_record(row, source.features()).startswith(b"\xff\xd8")
        other = dataclasses.replace(row, id="a-9")
        sentence = f"{row.uri}, byte 0: the record has another id than the index says; run python"
        with pytest.raises(RejectionError, match=re.escape(sentence)):
            read_record(other, source.features())
