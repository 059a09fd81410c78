"""Pictures of a dataset directory."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")
pytest.importorskip("matplotlib")

from pipeline.records.info import load_info
from pipeline.records.table import RecordTable
from pipeline.show import choose_examples, choose_others, main
from schemas.least_certain import LeastCertain, UncertainReceipt
from tests.support.dataset_factory import exclude, list_least_certain, write_dataset
from tests.support.dataset_files import flip


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


def uncertain(id_: str) -> UncertainReceipt:
    return UncertainReceipt(
        id=id_, split="train", layout=id_.partition("-")[0], similarity=int(id_[-1]) / 10
    )


def height_of(directory: Path) -> int:
    """Height of examples.png of a dataset, in pixels."""
    output = directory.parent / "pictures"
    assert main([str(directory), "--output", str(output)]) == 0
    with Image.open(output / "examples.png") as picture:
        return picture.size[1]


@pytest.mark.slow
def test_the_least_certain_receipts_have_rows_of_their_own(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts")
    without = height_of(directory)
    list_least_certain(directory, LeastCertain())
    assert height_of(directory) == without
    # Record 0 of shard 0 is alpha-0, which is left out; all others of "omega" are that receipt.
    listed = LeastCertain.of(map(uncertain, ("alpha-0", "omega-31", "alpha-4")))
    list_least_certain(directory, listed)
    exclude(directory, {0: [0]})
    assert height_of(directory) - without == pytest.approx(120 * (2 * 1.65 + 0.3), abs=2)


def test_a_damaged_list_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = write_dataset(tmp_path / "receipts")
    path = list_least_certain(directory, LeastCertain.of([uncertain("alpha-4")]))
    flip(path, -20)
    with pytest.raises(SystemExit):
        height_of(directory)
    assert f"{path}: has another checksum than the manifest says" in capsys.readouterr().err


def test_others_are_all_but_the_receipt(tmp_path: Path):
    info = load_info(write_dataset(tmp_path / "receipts", counts={"few": 4, "many": 28}))
    table = RecordTable.by_category(info, "train", "layout")
    few = choose_others(table, 0, None)
    assert few.tolist() == [0, 1, 2, 3]
    for number in few.tolist():
        others = choose_others(table, 0, int(table.order[number]))
        assert others.tolist() == [other for other in range(4) if other != number]
    many = choose_others(table, 1, int(table.order[4])).tolist()
    assert len(many) == 5
    assert many[0] == 5
    assert many[-1] == 31
    assert choose_others(table, 2, None).tolist() == []


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
