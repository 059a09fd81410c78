"""Lines of tables: every range has the lines that begin in it, and together they have all."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from apache_beam.io.filesystem import FileMetadata

from beam_jobs.errors import BuildError
from beam_jobs.sources import table_lines
from beam_jobs.sources.table_lines import line_ranges, lines_of, lines_of_range


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        pytest.param(0, 2, [b"0123\n"], id="ends_in_a_line"),
        pytest.param(2, 4, [b"5678\n"], id="begins_in_a_line"),
        pytest.param(6, 4, [], id="begins_in_the_last_line"),
        pytest.param(0, 5, [b"0123\n"], id="ends_at_a_line_end"),
        pytest.param(5, 5, [b"5678\n"], id="begins_at_a_line_begin"),
        pytest.param(0, 10, [b"0123\n", b"5678\n"], id="whole"),
    ],
)
def test_a_range_has_the_lines_that_begin_in_it(
    tmp_path: Path, start: int, length: int, expected: list[bytes]
) -> None:
    (tmp_path / "t").write_bytes(b"0123\n5678\n")
    assert list(lines_of_range((str(tmp_path / "t"), start, length))) == expected


@given(
    parts=st.lists(st.sampled_from([b"\n", b"a", b"bcd", b"\r\n"]), max_size=30),
    range_bytes=st.integers(1, 20),
    piece_bytes=st.integers(1, 20),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranges_have_each_line_once_and_in_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: list[bytes],
    range_bytes: int,
    piece_bytes: int,
) -> None:
    for name, value in (("RANGE", range_bytes), ("PIECE", piece_bytes), ("LINE", piece_bytes)):
        monkeypatch.setattr(table_lines, f"_{name}_BYTES", value)
    data = b"".join(parts)
    path = tmp_path / "t"
    path.write_bytes(data)
    expected = [line for line in data.replace(b"\n", b"\n\0").split(b"\0") if line]
    assert list(lines_of(str(path))) == expected
    ranges = list(line_ranges(FileMetadata(str(path), len(data))))
    assert [line for part in ranges for line in lines_of_range(part)] == expected


def test_a_table_that_can_t_be_read_ends_the_build(tmp_path: Path) -> None:
    sentence = f"{tmp_path} could not be read: IsADirectoryError"
    with pytest.raises(BuildError, match=f"^{re.escape(sentence)}.*leave it out of --input$"):
        list(lines_of(str(tmp_path)))
