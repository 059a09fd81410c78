"""The command that generates receipts: its options, its errors and what it imports."""

import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.receipts import generate
from benchmarks.receipts.__main__ import main
from benchmarks.receipts.corpus import RECORDS_NAME
from tests.support.processes import run_python


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"count": 0}, "count is 0; it must be 1 or more"),
        ({"layouts": 0}, "layouts is 0; it must be 1 or more"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
        ({"workers": 0}, "workers is 0; it must be 1 or more"),
        ({"size": "huge"}, "size is 'huge'; it must be one of photo, small"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"count": 1, **options}
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        generate(tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_command_line_refuses_a_directory_with_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    assert main([str(tmp_path), "--count", "1"]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path} is not empty; receipts are written to a new or empty directory only:"
        " choose another one, or delete it first\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_command_line_writes_a_corpus_and_a_contact_sheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = tmp_path / "sheet.png"
    arguments = ["--count", "4", "--size", "small", "--workers", "1", "--contact-sheet", str(sheet)]
    assert main([str(tmp_path / "out"), *arguments]) == 0
    assert capsys.readouterr().out.startswith("4 receipts in ")
    assert len((tmp_path / "out" / RECORDS_NAME).read_text().splitlines()) == 4
    with Image.open(sheet) as image:
        assert image.width > 2000


def test_import_loads_no_package_that_reads_the_disk() -> None:
    code = (
        "import sys, benchmarks.receipts.__main__ as m;"
        "print([n for n in ('faker', 'segno', 'barcode', 'matplotlib') if n in sys.modules])"
    )
    assert run_python("-c", code).stdout.strip() == "[]"
