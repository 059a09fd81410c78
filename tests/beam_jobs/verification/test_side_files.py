"""The check of the files beside the shards."""

from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.verification.side_files import check_files
from schemas.file_names import schema_name, statistics_name, summary_name
from tests.support.dataset_files import manifest_of

pytestmark = pytest.mark.slow


def test_a_listing_that_can_t_be_read_is_a_fault(copy: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: str, offset: int, length: int) -> bytes:
        raise OSError(f"{path} could not be read")

    monkeypatch.setattr("beam_jobs.storage.checksums.files.read_range", refuse)
    assert [str(each) for each in check_files(str(copy), manifest_of(copy))] == [
        f"{copy / name}: can't be read: {copy / name} could not be read"
        for name in (schema_name(1), statistics_name(1), summary_name(1))
    ]
