"""Ids that are none: a build of them ends before an image is read or a worker's memory is full."""

import re
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.prepare import row_file
from beam_jobs.prepare.repeated_ids import NO_REPEATS, check_ids, sum_repeats
from beam_jobs.prepare.row_file import RowFile, read_chunks
from beam_jobs.prepare.staging import Staging
from beam_jobs.sources.row import Row
from tests.support.receipts import read_table, write_receipts, write_table


def line(id_: str, number: int = 0) -> bytes:
    return Row(id=id_, uri=f"{number}.jpg").to_bytes()


@pytest.mark.parametrize(
    ("words", "count", "example"),
    [
        pytest.param([1, 2, 3], 0, None, id="none"),
        pytest.param([7, 7, 7], 2, 7, id="all"),
        pytest.param([5, 1, 5, 9], 1, 5, id="apart"),
    ],
)
def test_a_file_counts_its_repeats(
    tmp_path: Path, words: list[int], count: int, example: int | None
):
    rows = [(word, line(str(word), number)) for number, word in enumerate(words)]
    found, row = RowFile.write(Staging(str(tmp_path)), rows).repeats
    assert found == count
    assert (Row.from_bytes(row).id if row else None) == (str(example) if example else None)


def test_repeats_are_summed_up():
    assert sum_repeats([]) == NO_REPEATS
    assert sum_repeats([(3, b"a"), NO_REPEATS, (2, b"b")]) == (5, b"b")


def test_as_many_repeats_as_may_be_rejected():
    check_ids(100, (5, line("x")), max_bad_fraction=0.05)
    sentence = (
        "at least 6 of 100 inputs have the id of another input, such as 'x', more than "
        "--max-bad-fraction 0.05 allows; no image was read. Give every receipt its own id, or name "
        "the column that holds the ids with --columns id=NAME."
    )
    with pytest.raises(BuildError, match=f"^{re.escape(sentence)}$"):
        check_ids(100, (6, line("x")), max_bad_fraction=0.05)


def test_a_constant_id_ends_the_build_before_an_image_is_read(
    tmp_path: Path, build, capsys: pytest.CaptureFixture[str]
):
    table = write_receipts(tmp_path / "in", {"a": 6})
    write_table(table, [{**row, "id": "same"} for row in read_table(table)])
    assert build(table, tmp_path / "out") == 1
    assert "5 of 6 inputs have the id of another input, such as 'same'" in capsys.readouterr().err
    assert not (tmp_path / "out" / "_staging" / "prepared").exists()


def test_a_bucket_of_far_too_many_rows_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = RowFile.write(Staging(str(tmp_path)), [(0, line("same", number)) for number in range(9)])
    [(bucket, place)] = file.ranges(9)
    monkeypatch.setattr(row_file, "_MAX_ROWS", 9)
    assert {number: len(rows) for number, rows in read_chunks(bucket, [place], 9).items()} == {0: 9}
    monkeypatch.setattr(row_file, "_MAX_ROWS", 8)
    with pytest.raises(
        BuildError, match="more than 8 inputs have the same few ids, such as 'same'"
    ):
        read_chunks(bucket, [place], 9)
