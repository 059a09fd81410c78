"""Files of rows: every row comes out once, in the chunk of its hash."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.prepare import row_file
from beam_jobs.prepare.chunks import chunk_count
from beam_jobs.prepare.row_file import HashedRow, RowFile, read_chunks
from beam_jobs.prepare.staging import Staging
from beam_jobs.storage.files import ByteRange

WORDS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1])
LINES = st.binary(min_size=1, max_size=40).filter(lambda line: b"\n" not in line)
ROWS = st.lists(st.tuples(WORDS, LINES), min_size=1, max_size=60)


@given(rows=ROWS, inputs=st.integers(1, 10_000_000), parts=st.integers(1, 4))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_row_comes_out_once_and_with_its_chunk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[HashedRow],
    inputs: int,
    parts: int,
) -> None:
    monkeypatch.setattr(row_file, "_FRAME_BYTES", 50)  # some frames a file, one row in some
    buckets: dict[int, list[ByteRange]] = {}
    for part in (rows[number::parts] for number in range(parts)):
        if part:
            file = RowFile.write(Staging(str(tmp_path)), part)
            assert len(file) == len(part)
            for bucket, place in file.ranges(inputs):
                buckets.setdefault(bucket, []).append(place)
    chunks = [read_chunks(bucket, ranges, inputs) for bucket, ranges in buckets.items()]
    found = [(number, line) for each in chunks for number in each for line in each[number]]
    expected = [(word * chunk_count(inputs) >> 64, line) for word, line in rows]
    assert sorted(found) == sorted(expected)
    numbers = [number for each in chunks for number in each]
    assert len(set(numbers)) == len(numbers)  # a chunk's rows come together


def test_a_bucket_reads_little_more_than_its_rows(tmp_path: Path) -> None:
    rows = [((number << 64) // 10_000, b"x" * 100) for number in range(10_000)]
    file = RowFile.write(Staging(str(tmp_path)), rows)
    ranges = dict(file.ranges(10_000))
    assert len(ranges) == chunk_count(10_000) == 64
    assert len(file.end) == pytest.approx(1_000_000 / row_file._FRAME_BYTES, abs=1)
    assert sum(length for _, _, length in ranges.values()) < 2.5 * Path(file.path).stat().st_size


def test_equal_rows_make_the_same_file(tmp_path: Path) -> None:
    rows = [(5, b"five"), (3, b"three"), (3, b"drei")]
    first, second = (RowFile.write(Staging(str(tmp_path)), each) for each in (rows, rows[::-1]))
    assert first.path == second.path
    [path] = (tmp_path / "_staging" / "rows").iterdir()
    assert path.name == Path(first.path).name
