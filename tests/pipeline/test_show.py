"""Pictures of a dataset directory."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")
pytest.importorskip("matplotlib")

from pipeline.show import choose_examples, main
from tests.support.dataset_factory import write_dataset


def test_draws_layouts_shards_and_a_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = write_dataset(tmp_path / "receipts")
    output = tmp_path / "pictures" / "new"
    assert main([str(directory), "--output", str(output)]) == 0
    names = ("layouts.png", "examples.png", "shards.png", "batch.png")
    assert capsys.readouterr().out.splitlines() == [f"drew {output / name}" for name in names]
    for name in names:
        with Image.open(output / name) as picture:
            assert picture.size > (600, 150)
            assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 10


@pytest.mark.parametrize(
    ("counts", "rows", "numbers"),
    [
        ([3, 1], [0, 1], [[0, 1, 2], [0]]),
        ([1, 11], [1, 0], [[0, 2, 4, 6, 8, 10], [0]]),
        (list(range(1, 14)), [12, 11, 10, 9, 8, 7, 5, 4, 3, 2, 1, 0], None),
    ],
)
def test_examples_are_of_both_ends(
    counts: list[int], rows: list[int], numbers: list[list[int]] | None
):
    chosen, positions = choose_examples(np.array(counts))
    assert chosen.tolist() == rows
    if numbers is not None:
        assert [own.tolist() for own in positions] == numbers
    for row, own in zip(rows, positions, strict=True):
        assert len(set(own.tolist())) == min(counts[row], 6)
        assert 0 <= own.min() <= own.max() < counts[row]


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
