"""Datasets of receipts without a layout and without text: layouts are found by the images."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("apache_beam")
pytest.importorskip("scipy")

from beam_jobs.compact import main as compact_main
from beam_jobs.forget import main as forget_main
from beam_jobs.verify import verify
from beam_jobs.writing.output import read_least_certain
from schemas.file_names import least_certain_name
from schemas.layout_centroids import NO_CLUSTER
from tests.support.dataset_files import manifest_of, records_of
from tests.support.grown import table_of
from tests.support.printed import photograph, print_receipt
from tests.support.receipts import contents

IMAGE = "--layout-from=image"
SHOPS = {
    "bakery": ["BAKERY MILLER", "Market Square 3", "Springfield", "Receipt No. 12345"],
    "kiosk": ["Corner Kiosk Ltd.", "Harbor Road 118", "Tel. 555 0199", "Tax invoice"],
    "mart": ["99 SPEED MART", "Lot 2811, Jalan Angsa", "Kuala Lumpur", "Cash sale"],
}
COUNTS = {"bakery": 9, "kiosk": 6, "mart": 3}


def photos(folder: Path, counts: dict[str, int], *, first: int = 0) -> list[Path]:
    """Files of receipts; every other one is a photo of a tilted sheet, and the rest are scans."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for shop, count in counts.items():
        for number in range(first, first + count):
            seed = 100 * list(SHOPS).index(shop) + number
            image = print_receipt(SHOPS[shop], seed=seed)
            if number % 2:
                image = photograph(image, angle=number % 7 - 3, seed=seed)
            files.append(folder / f"{shop}-{number}.jpg")
            image.save(files[-1], quality=80)
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    photos(folder, COUNTS)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path, build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("found") / "out"
    assert build(folder, out, "--shards=2", IMAGE) == 0
    return out


@pytest.fixture
def copy(found: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(found, tmp_path / "copy"))


def shop_names(directory: Path) -> dict[str, set[str]]:
    """Names of the layouts that the receipts of each shop have."""
    names: dict[str, set[str]] = {}
    for split in manifest_of(directory).splits:
        for shard in records_of(directory, split):
            for record in shard:
                shop = Path(record["image/source_id"]).name.partition("-")[0]
                names.setdefault(shop, set()).add(record["receipt/layout"])
    return names


BY_SIZE = {shop: {f"cluster-{number:05d}"} for number, shop in enumerate(COUNTS)}


def test_receipts_that_look_alike_at_the_top_are_a_layout(found: Path):
    assert shop_names(found) == BY_SIZE
    assert manifest_of(found).build_options["layout_from"] == "image"
    assert list(verify(str(found), workers=1)) == []


def test_bytes_do_not_depend_on_workers(found: Path, folder: Path, build, tmp_path: Path):
    assert build(folder, tmp_path / "out", "--shards=2", IMAGE, "--workers=2") == 0
    assert contents(tmp_path / "out") == contents(found)
    assert least_certain_name(1) in contents(found)


def test_images_may_be_stored_raw(folder: Path, build, tmp_path: Path):
    options = ("--shards=2", "--encoding=raw", "--raw-size=640x480", "--channels=1", IMAGE)
    assert build(folder, tmp_path / "out", *options) == 0
    assert shop_names(tmp_path / "out") == BY_SIZE


def test_appended_receipts_get_known_layouts_and_new_ones(copy: Path, build, tmp_path: Path):
    photos(tmp_path / "new", {"bakery": 3, "mart": 1}, first=20)
    pixels = np.full((300, 200), 255, np.uint8)
    Image.fromarray(pixels).save(tmp_path / "new" / "blank-0.jpg")
    print_receipt(["Pet Shop", "Lion Street 88", "Open 9 to 5"]).save(
        tmp_path / "new" / "pets-0.jpg"
    )
    assert build(tmp_path / "new", copy, "--append") == 0
    names = shop_names(copy)
    assert names == {**BY_SIZE, "blank": {NO_CLUSTER}, "pets": {"cluster-00003"}}
    assert compact_main([str(copy)]) == 0
    assert shop_names(copy) == names
    ids = tmp_path / "ids.txt"
    ids.write_text("bakery-0.jpg\n")
    assert forget_main([str(copy), "--ids", str(ids)]) == 0
    assert list(verify(str(copy), workers=1)) == []
    listed = read_least_certain(str(copy), manifest_of(copy))
    ids = {one.id for one in listed.receipts}
    assert "bakery-20.jpg" not in ids  # its layout has lost its centroid
    assert {"pets-0.jpg", "mart-20.jpg", "kiosk-0.jpg"} < ids
    assert "blank-0.jpg" not in ids


def test_blank_images_have_no_layout(build, tmp_path: Path, capsys):
    (tmp_path / "in").mkdir()
    for number in range(3):
        pixels = np.full((300, 200 + number), 255, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "in" / f"{number}.png")
    assert build(tmp_path / "in", tmp_path / "out", IMAGE) == 1
    message = "--layout-from image finds no layout, as no receipt has print in its image"
    assert message in capsys.readouterr().err


def test_a_dry_run_is_refused(folder: Path, build, tmp_path: Path, capsys):
    with pytest.raises(SystemExit):
        build(folder, tmp_path / "out", IMAGE, "--dry-run")
    assert "--dry-run reads no image, and --layout-from image" in capsys.readouterr().err


def test_a_table_needs_no_layout(folder: Path, build, tmp_path: Path):
    rows = [{"id": path.name, "image": str(path)} for path in sorted(folder.iterdir())]
    assert build(table_of(tmp_path, "rows", rows), tmp_path / "out", "--shards=2", IMAGE) == 0
    assert shop_names(tmp_path / "out") == BY_SIZE
