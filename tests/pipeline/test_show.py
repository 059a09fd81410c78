"""Pictures of a dataset directory."""

from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("tensorflow")
pytest.importorskip("matplotlib")

from pipeline.show import main
from tests.support.dataset_factory import write_dataset


def test_draws_layouts_shards_and_a_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = write_dataset(tmp_path / "receipts")
    output = tmp_path / "pictures" / "new"
    assert main([str(directory), "--output", str(output)]) == 0
    names = ("layouts.png", "shards.png", "batch.png")
    assert capsys.readouterr().out.splitlines() == [f"drew {output / name}" for name in names]
    for name in names:
        with Image.open(output / name) as picture:
            assert picture.size > (600, 150)
            assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 10


@pytest.mark.parametrize(
    ("directory", "output", "sentence"),
    [
        ("nothing", "pictures", "holds no finished dataset"),
        ("receipts", "file", "File exists"),
    ],
)
def test_errors(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    directory: str,
    output: str,
    sentence: str,
):
    write_dataset(tmp_path / "receipts")
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        main([str(tmp_path / directory), "--output", str(tmp_path / output)])
    assert sentence in capsys.readouterr().err
