"""Files that name the receipts to forget, as people and programs write them."""

import json
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.arguments.forget import _read_ids


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"r1\nr2\n", id="unix"),
        pytest.param(b"r1\r\nr2\r\n", id="windows"),
        pytest.param(b"r1\rr2\r", id="old_mac"),
        pytest.param(b"\xef\xbb\xbfr1\r\nr2", id="byte_order_mark"),
        pytest.param(b" r1 \n\tr2\t\n\n \n", id="white_space"),
        pytest.param(b'"r1"\n"r2"\n', id="quoted"),
        pytest.param(b'r2\nr1\n"r1"\n', id="twice"),
    ],
)
def test_two_ids(data: bytes, tmp_path: Path):
    path = tmp_path / "ids.txt"
    path.write_bytes(data)
    assert _read_ids(str(path)) == ("r1", "r2")


@given(ids=st.sets(st.text(min_size=1), min_size=1))
def test_every_id_can_be_named(ids: set[str], tmp_path_factory: pytest.TempPathFactory):
    ids = {id_.encode(errors="replace").decode() for id_ in ids}  # no lone surrogates
    path = tmp_path_factory.mktemp("ids") / "ids.txt"
    path.write_text("".join(f"{json.dumps(id_)}\n" for id_ in ids), newline="")
    assert set(_read_ids(str(path))) == ids


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "holds no id"),
        (b"\n \r\n", "holds no id"),
        ("r1\n".encode("utf-16"), "is not UTF-8.*save it as UTF-8"),
        (b'r1\n"r2\n', "line 2 begins with a quote.*json.dumps"),
        (b"r1\nr\r2\n", "line 2 has a carriage return.*'r.*r2'.*JSON string"),
    ],
)
def test_files_that_name_no_id_for_sure(data: bytes, message: str, tmp_path: Path):
    path = tmp_path / "ids.txt"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"^--ids {path}.*{message}"):
        _read_ids(str(path))
