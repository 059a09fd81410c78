"""JSON Lines tables: every line becomes a row, good or bad, and none is lost."""

import json
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.rejection import Reason
from beam_jobs.sources import table_lines
from beam_jobs.sources.row import Row
from beam_jobs.storage.files import escape
from tests.support.sources import LABELS, read_rows, source, write_table


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "[t]*.jsonl"])
def test_jsonl(tmp_path: Path, name: str) -> None:
    write_table(
        tmp_path / name,
        '\ufeff{"image": "a.jpg", "layout": "Bäcker", "total": 2, "currency": "EUR", "boxes": '
        '[{"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}]}\n'
        "\n  \n"
        '{"image": "b.jpg", "id": 7, "layout": 12, "group": 3, "total": "2", "currency": "EUR"}\r\n'
        '{"image": "c.jpg"}',
    )
    path = escape(str(tmp_path / name))
    second, first, bad = read_rows(source("jsonl", path, labels=LABELS))
    assert first == Row(
        id="a.jpg",
        uri="/images/a.jpg",
        categories={"layout": "Bäcker", "currency": "EUR"},
        labels={"total": 2.0},
        boxes=((1.0, 2.0, 3.0, 4.0, ""),),
    )
    assert second == Row(
        id="7",
        uri="/images/b.jpg",
        group="3",
        categories={"layout": "12", "currency": "EUR"},
        labels={"total": 2.0},
    )
    assert (bad.id, bad.source) == ("c.jpg", '{"image": "c.jpg"}')
    assert bad.problem == (Reason.LABEL_MISSING, "label total has no value")


def test_ranges_of_a_table_are_read_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f'{{"image": "{number}", "layout": "x"}}' for number in range(200)]
    write_table(tmp_path / "t.jsonl", "\n".join(lines))
    monkeypatch.setattr(table_lines, "_RANGE_BYTES", 100)
    rows = read_rows(source("jsonl", tmp_path / "t.jsonl"))
    assert sorted(int(row.id) for row in rows) == list(range(200))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b"{", Reason.BAD_ROW, id="cut_off"),
        pytest.param(b"[1]", Reason.BAD_ROW, id="list"),
        pytest.param(b"null", Reason.BAD_ROW, id="null"),
        pytest.param(b"image,layout", Reason.BAD_ROW, id="csv"),
        pytest.param(
            b'{"image": "a", "layout": "x", "layout": "y"}', Reason.BAD_ROW, id="key_twice"
        ),
        pytest.param(
            b'{"image": "a", "layout": "x", "boxes": [{"xmin": 1, "xmin": 2}]}',
            Reason.BAD_ROW,
            id="key_of_a_box_twice",
        ),
        pytest.param(b"[" * 100_000, Reason.BAD_ROW, id="deep"),
        pytest.param(b'{"image": "\xff", "layout": "x"}', Reason.BAD_ROW, id="not_utf8"),
        pytest.param(b'{"image": "a", "layout": "\\ud800"}', Reason.BAD_ROW, id="lone_surrogate"),
        pytest.param(b'{"image": "\\ud800", "layout": "x"}', Reason.BAD_ROW, id="surrogate_image"),
        pytest.param(b'{"image": null, "layout": "x"}', Reason.IMAGE_MISSING, id="null_image"),
        pytest.param(b'{"layout": "x"}', Reason.IMAGE_MISSING, id="no_image"),
        pytest.param(b'{"image": "a", "id": null, "layout": "x"}', Reason.ID_MISSING, id="null_id"),
        pytest.param(b'{"image": "a"}', Reason.LAYOUT_MISSING, id="no_layout"),
        pytest.param(
            b'{"image": "a", "layout": "x", "boxes": 3}', Reason.BOXES_INVALID, id="boxes"
        ),
    ],
)
def test_odd_jsonl(line: bytes, reason: Reason) -> None:
    [bad] = source("jsonl").jsonl_row(line)
    assert bad.problem is not None
    assert bad.problem[0] == reason
    assert bad.problem[1]
    assert Row.from_bytes(bad.to_bytes()) == bad


def test_bad_lines_are_kept_as_they_were() -> None:
    [bad] = source("jsonl").jsonl_row('{"image": "ä",'.encode())
    assert bad.source == '{"image": "ä",'
    assert bad.id.startswith("row:")
    assert bad.problem is not None
    assert bad.problem[1].startswith("not a JSON object: ")


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_a_json_array_is_said_to_be_one(tmp_path: Path, indent: int | None, name: str) -> None:
    rows = [{"image": f"{number}.jpg", "layout": "x"} for number in range(9)]
    write_table(tmp_path / name, "\ufeff\n" + json.dumps(rows, indent=indent))
    with pytest.raises(BuildError) as caught:
        read_rows(source("jsonl", tmp_path / name))
    sentence = (
        f"{tmp_path / name} holds a JSON array: write each of its objects on a line of its own, "
        "for example with jq -c '.[]'"
    )
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        b'{"' + b"x" * 10**6 + b'": 1, "' + b"x" * 10**6 + b'": 1}',
        b"x" * 10**6,
        b'{"image": "' + b"x" * 10**6 + b'", "layout": "a"}',
        b'{"image": "\xff' + b"x" * 10**6 + b'", "layout": "a"}',
    ],
    ids=["key_twice", "no_json", "name", "not_utf8"],
)
def test_a_line_of_a_megabyte_is_kept_in_part(line: bytes) -> None:
    [bad] = source("jsonl").jsonl_row(line)
    assert bad.problem is not None
    assert len(bad.problem[1]) < 300
    assert len(bad.to_bytes()) < 70_000
