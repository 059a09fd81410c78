"""Descriptors of receipts by their images."""

import io

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("scipy")

from beam_jobs.layouts.clusters import max_value
from beam_jobs.layouts.image import IMAGE_SIZE, image_descriptors
from beam_jobs.layouts.sheet import cut_out_sheet
from beam_jobs.layouts.strips import first_strips
from tests.support.printed import photograph, print_receipt

BAKERY = ["BAKERY MILLER", "Market Square 3", "Springfield", "Receipt No. 12345"]
KIOSK = ["Corner Kiosk Ltd.", "Harbor Road 118", "Tel. 555 0199", "Tax invoice"]


def similarity(left: Image.Image, right: Image.Image) -> float:
    one, other = image_descriptors([left, right]).astype(np.float64)
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(print_receipt(BAKERY, seed=1), id="other items"),
        pytest.param(as_jpeg(print_receipt(BAKERY, seed=1), 40), id="low quality"),
        pytest.param(print_receipt(BAKERY, seed=1).convert("RGB"), id="in color"),
        pytest.param(print_receipt(BAKERY, seed=1).reduce(2), id="scaled"),
        pytest.param(print_receipt(BAKERY, seed=1).rotate(3, fillcolor=255), id="skewed"),
        pytest.param(photograph(print_receipt(BAKERY, seed=1)), id="photo"),
        pytest.param(photograph(print_receipt(BAKERY, seed=1), angle=9), id="tilted photo"),
        pytest.param(photograph(print_receipt(BAKERY, seed=1), shadow=0.6), id="shadow"),
        pytest.param(photograph(print_receipt(BAKERY, seed=1), angle=-92), id="lying photo"),
    ],
)
def test_receipts_of_one_shop_are_alike(other: Image.Image) -> None:
    first = print_receipt(BAKERY, seed=0)
    assert similarity(first, other) > 0.25
    assert similarity(print_receipt(KIOSK, seed=2), other) < 0.12


def test_a_receipt_is_described_alike_in_any_company() -> None:
    images = [print_receipt(BAKERY), Image.new("L", (300, 500), 255), print_receipt(KIOSK)]
    together = image_descriptors(images)
    assert together.shape == (3, IMAGE_SIZE)
    assert together.dtype == np.int8
    alone = [image_descriptors([image])[0] for image in images]
    np.testing.assert_array_equal(together, alone)
    assert np.abs(together.astype(int)).max(axis=1).tolist() == [max_value(IMAGE_SIZE), 0, 90]


def test_no_images() -> None:
    assert image_descriptors([]).shape == (0, IMAGE_SIZE)


@pytest.mark.parametrize("size", [(16, 16), (16, 2000), (2000, 16)])
@pytest.mark.parametrize("kind", ["black", "white", "noise", "half"])
def test_any_image_has_a_descriptor(size: tuple[int, int], kind: str) -> None:
    pixels = np.full(size[::-1], 255 * (kind == "white"), np.uint8)
    if kind == "noise":
        pixels = np.random.default_rng(0).integers(0, 256, size[::-1], np.uint8)
    elif kind == "half":
        pixels[: size[1] // 2] = 255
    assert image_descriptors([Image.fromarray(pixels)]).shape == (1, IMAGE_SIZE)


@pytest.mark.parametrize("angle", [0, 8, -8, 90])
def test_the_sheet_is_cut_out(angle: float) -> None:
    sheet = print_receipt(BAKERY)
    found = cut_out_sheet(photograph(sheet, angle=angle))
    assert abs(found.width / sheet.width - 1) < 0.1
    assert abs(found.height / sheet.height - 1) < 0.1
    assert np.quantile(np.asarray(found), 0.05) < 150 < np.quantile(np.asarray(found), 0.2)


def test_a_shadow_is_no_border_of_the_sheet() -> None:
    sheet = print_receipt(BAKERY)
    photo = photograph(sheet, shadow=0.7)
    assert cut_out_sheet(photo).width > 0.9 * sheet.width


def test_a_scan_is_left_as_it_is() -> None:
    scan = print_receipt(BAKERY)
    assert cut_out_sheet(scan) is scan


def test_each_group_of_words_is_a_strip() -> None:
    lines = ["MILLER", "left                    right", "one line of words"]
    image = print_receipt(lines)
    strips = first_strips(image.crop((0, 0, image.width, 200)))
    assert len(strips) == 4
    assert strips[0].shape[0] > strips[3].shape[0] > 10
    assert strips[3].shape[1] > 2 * strips[1].shape[1]
    for strip in strips:
        assert strip[[0, -1]].any(axis=1).all()
        assert strip[:, [0, -1]].any(axis=0).all()
