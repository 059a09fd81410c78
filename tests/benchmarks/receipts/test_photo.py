"""Photos of receipts: perspective, orientation, format and size."""

import io
from collections import Counter

import numpy as np
import pytest
from PIL import Image, ImageOps

from benchmarks.receipts.camera import (
    homography,
    inverse,
    project,
    project_boxes,
    rectangle,
    tilted,
)
from benchmarks.receipts.corpus import Corpus, draw_receipt
from benchmarks.receipts.layout import draw_layout
from benchmarks.receipts.photo import photograph, place
from benchmarks.receipts.randomness import stream
from benchmarks.receipts.render import FlatReceipt
from benchmarks.receipts.scene import Scene, draw_scene
from benchmarks.receipts.storage import draw_format, draw_orientation, encoded, stored_as

PLAIN_SCENE = Scene(
    style="scan",
    lighting="scanner",
    background="plain",
    megapixels=0.4,
    frame_aspect=4 / 3,
    fill=0.9,
    angle=7.0,
    tilt=(9.0, -12.0),
    blur=0.0,
    noise=0.0,
    grayscale=False,
)


def test_homography_maps_the_corners_and_is_undone_by_its_inverse() -> None:
    corners = tilted(40, 90, angle=11, tilt=(8, -13)) + 100
    view = homography(40, 90, corners)
    sheet = rectangle(0, 0, 40, 90)
    np.testing.assert_allclose(project(view, sheet), corners, atol=1e-9)
    np.testing.assert_allclose(project(inverse(view), corners), sheet, atol=1e-9)
    whole = project_boxes(view, np.array([[0.0, 0.0, 40.0, 90.0]]))[0]
    np.testing.assert_allclose(whole, [*corners.min(axis=0), *corners.max(axis=0)])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_follow_perspective_and_exif_to_the_pixel(orientation: int) -> None:
    layout = draw_layout(0, 0)
    paper = (36.0, 60.0)
    rng = stream(0, "exif", orientation)
    placement = place(PLAIN_SCENE, paper=paper, margin=2.0, rng=rng)
    ink = Image.new("L", (360, 600))
    patch = (40, 50, 160, 110)
    ink.paste(255, patch)
    flat = FlatReceipt(ink=ink, boxes=np.array([patch], dtype=float), texts=("patch",))
    upright, boxes = photograph(flat, layout, PLAIN_SCENE, placement, rng)
    stored, stored_boxes = stored_as(upright, boxes, orientation)
    data = encoded(stored, suffix="jpg", orientation=orientation, rng=rng)
    with Image.open(io.BytesIO(data)) as image:
        assert image.getexif().get(0x0112, 1) == orientation
        turned = ImageOps.exif_transpose(image)
        pixels = np.asarray(image.convert("L"))
    assert turned.size == upright.size
    difference = np.abs(np.asarray(turned, float) - np.asarray(upright, float)).mean()
    assert difference < 6  # JPEG's loss only; a wrong turn differs by far more
    down, across = np.nonzero(pixels < 75)
    seen = [across.min(), down.min(), across.max() + 1, down.max() + 1]
    np.testing.assert_allclose(stored_boxes[0], seen, atol=1.5)


def test_shares_of_formats_sizes_and_orientations() -> None:
    suffixes: Counter[str] = Counter()
    turned = gray = scans = middle = 0
    draws = 3000
    for index in range(draws):
        rng = stream(0, "shares", index)
        scene = draw_scene(rng, size="photo", paper_aspect=2.0)
        orientation = draw_orientation(rng, scene)
        suffixes[draw_format(rng, scene, orientation)] += 1
        turned += orientation != 1
        gray += scene.grayscale
        scans += scene.style == "scan"
        middle += 0.5 <= scene.megapixels <= 3
        assert 0.3 <= scene.megapixels <= 12
    assert set(suffixes) == {"jpg", "png", "webp", "tif"}
    assert 0.7 < suffixes["jpg"] / draws < 0.9
    assert min(suffixes.values()) / draws > 0.03
    assert 0.08 < turned / draws < 0.2
    assert 0.08 < gray / draws < 0.2
    assert 0.15 < scans / draws < 0.3
    assert middle / draws > 0.7


def test_a_photo_has_between_a_third_and_twelve_megapixels() -> None:
    receipt = draw_receipt(Corpus(), 1)
    with Image.open(io.BytesIO(receipt.data)) as image:
        assert 0.3e6 <= image.width * image.height <= 12e6
