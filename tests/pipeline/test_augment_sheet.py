"""The contact sheet of the augmentation ops."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")
pytest.importorskip("matplotlib")

from pipeline.augment_sheet import ROWS, main
from tests.support.dataset_factory import write_dataset


def test_draws_every_op(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory, out = write_dataset(tmp_path / "receipts"), tmp_path / "augment.png"
    size = ["--receipts", "2", "--height", "60", "--width", "40"]
    assert main([str(directory), "--output", str(out), "--seed", "1", *size]) == 0
    assert capsys.readouterr().out == f"drew {out}\n"
    with Image.open(out) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    rows = np.array_split(pixels, len(ROWS))
    assert len(ROWS) > 10
    for row in rows[1:]:
        assert (row != rows[0]).any()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--receipts=0"], "error: --receipts must be at least 1, got 0"),
        (["--height=tall"], "error: argument --height: must be a whole number, got 'tall'"),
    ],
)
def test_errors(
    tmp_path: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    directory = write_dataset(tmp_path / "receipts")
    with pytest.raises(SystemExit) as ended:
        main([str(directory), f"--output={tmp_path / 'augment.png'}", *options])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
