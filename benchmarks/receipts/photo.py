"""Takes the picture: a flat receipt and a scene become an image with boxes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from benchmarks.receipts.background import draw_background
from benchmarks.receipts.camera import (
    Matrix,
    Points,
    bounds,
    homography,
    inverse,
    project,
    project_boxes,
    rectangle,
    tilted,
)
from benchmarks.receipts.layout import Color, Layout
from benchmarks.receipts.light import light_map, sensor_noise
from benchmarks.receipts.noise import grayscale, smooth_noise
from benchmarks.receipts.render import FlatReceipt
from benchmarks.receipts.scene import Scene

_TEXTURE_PX = 640  # a background's larger side before it is enlarged: it lies out of focus
_PRINT_EDGE = 1.5  # columns above the first and below the last row that are never printed
_TEETH = 81  # points along a torn edge
_SCAN_BED: Color = (254, 254, 254)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Position of the paper in the picture.

    Attributes:
      frame: width and height of the image, pixels.
      paper: float64 [4, 2], the paper's corners in the image, clockwise from its top left.
      column_px: width of a body character in the image, about.
    """

    frame: tuple[int, int]
    paper: Points
    column_px: float


def place(
    scene: Scene, *, paper: tuple[float, float], margin: float, rng: np.random.Generator
) -> Placement:
    """Turns and tilts the paper, and fits its printed part into the frame.

    Args:
      scene: angles and frame.
      paper: width and height of the paper, in columns.
      margin: unprinted columns left and right; they may lie outside of the image.
      rng: where within the frame.
    """
    width, height = paper
    corners = tilted(width, height, angle=scene.angle, tilt=scene.tilt)
    view = homography(width, height, corners)
    edge = min(margin, _PRINT_EDGE)
    printed = project(view, rectangle(margin, edge, width - margin, height - edge))
    xmin, ymin, xmax, ymax = bounds(printed)
    aspect = scene.frame_aspect or (ymax - ymin) / (xmax - xmin)
    frame_width = max(64, round(np.sqrt(scene.megapixels * 1e6 / aspect)))
    frame = (frame_width, max(64, round(frame_width * aspect)))
    span = np.array([xmax - xmin, ymax - ymin])
    scale = float((np.array(frame) * scene.fill / span).min())
    slack = np.array(frame) - span * scale
    shift = slack * rng.uniform(0.3, 0.7, size=2) - np.array([xmin, ymin]) * scale
    return Placement(frame=frame, paper=corners * scale + shift, column_px=scale)


def photograph(
    flat: FlatReceipt,
    layout: Layout,
    scene: Scene,
    placement: Placement,
    rng: np.random.Generator,
) -> tuple[Image.Image, Points]:
    """The picture, and the texts' bounds in it.

    Returns:
      An "RGB" or "L" image, and float64 [texts, 4] in its pixels.
    """
    view = homography(*flat.ink.size, placement.paper)
    sheet = _warped(flat.ink, view, placement.frame)
    radius = scene.blur * placement.column_px
    if radius > 0.15:
        # The print only: what lies around it is soft already, and one channel blurs faster.
        sheet = sheet.filter(ImageFilter.GaussianBlur(radius))
    sheet = _colored(sheet, ink=layout.type.ink, paper=layout.paper.tone)
    mask = _mask(placement, torn=scene.style != "scan")
    if scene.style == "scan":
        table = Image.new("RGB", placement.frame, _SCAN_BED)
    else:
        sheet = ImageChops.multiply(sheet, _creases(rng, placement.frame))
        table = _shadowed(_table(rng, scene, placement.frame), mask, placement, rng)
    image = Image.composite(sheet, table, mask)
    image = ImageChops.multiply(image, light_map(rng, scene.lighting, placement.frame))
    if scene.grayscale:
        image = image.convert("L")
    return sensor_noise(rng, image, scene.noise), project_boxes(view, flat.boxes)


def _warped(ink: Image.Image, view: Matrix, frame: tuple[int, int]) -> Image.Image:
    coefficients = inverse(view).ravel()[:8].tolist()
    return ink.transform(
        frame, Image.Transform.PERSPECTIVE, coefficients, Image.Resampling.BILINEAR, fillcolor=0
    )


def _colored(ink_mask: Image.Image, *, ink: Color, paper: Color) -> Image.Image:
    ramp = np.arange(256) / 255
    channels = [
        ink_mask.point((light + ramp * (dark - light)).round().astype(int).tolist())
        for dark, light in zip(ink, paper, strict=True)
    ]
    return Image.merge("RGB", channels)


def _mask(placement: Placement, *, torn: bool) -> Image.Image:
    """Mask of the paper; its short edges have a tear bar's teeth."""
    top_left, top_right, bottom_right, bottom_left = placement.paper
    if torn:
        outline = np.concatenate(
            [
                _toothed(top_left, top_right, bottom_left),
                _toothed(bottom_right, bottom_left, top_right),
            ]
        )
    else:
        outline = placement.paper
    mask = Image.new("L", placement.frame)
    ImageDraw.Draw(mask).polygon(outline.ravel().tolist(), fill=255)
    return mask.filter(ImageFilter.BoxBlur(0.5))


def _toothed(start: Points, stop: Points, inward: Points) -> Points:
    """An edge from `start` to `stop` with teeth: float64 [_TEETH, 2]."""
    depth = float(np.hypot(*(stop - start))) / _TEETH / 2
    direction = (inward - start) / np.hypot(*(inward - start))
    place = np.arange(_TEETH)[:, None]
    straight = start + (stop - start) * place / (_TEETH - 1)
    toothed: Points = straight + direction * depth * (place % 2)
    return toothed


def _table(rng: np.random.Generator, scene: Scene, frame: tuple[int, int]) -> Image.Image:
    shrink = min(0.6, _TEXTURE_PX / max(frame))
    size = (max(8, round(frame[0] * shrink)), max(8, round(frame[1] * shrink)))
    return draw_background(rng, scene.background, texture=size, size=frame)


def _shadowed(
    table: Image.Image, mask: Image.Image, placement: Placement, rng: np.random.Generator
) -> Image.Image:
    """The table under the paper's soft shadow."""
    shrink = max(1, max(table.size) // 128)
    small = mask.reduce(shrink)
    spread = placement.column_px / shrink
    offset = rng.uniform(-1.0, 1.0, size=2) * spread
    small = ImageChops.offset(small, round(offset[0]), round(offset[1]))
    small = small.filter(ImageFilter.GaussianBlur(max(0.5, spread * rng.uniform(0.4, 1.2))))
    depth = rng.uniform(0.35, 0.7)
    shadow = small.point([round(255 - depth * level) for level in range(256)])
    shadow = shadow.resize(table.size, Image.Resampling.BILINEAR)
    return ImageChops.multiply(table, Image.merge("RGB", (shadow,) * 3))


def _creases(rng: np.random.Generator, frame: tuple[int, int]) -> Image.Image:
    """Shading of paper that is not flat: waves, and a fold or two."""
    size = (96, 128)
    shade = 1 - rng.uniform(0.01, 0.07) * smooth_noise(rng, size, (3, 5))
    down: NDArray[np.float32] = np.linspace(0, 1, size[1], dtype=np.float32)[:, None]
    across: NDArray[np.float32] = np.linspace(-0.5, 0.5, size[0], dtype=np.float32)[None, :]
    for _ in range(int(rng.integers(0, 3))):
        distance = down + across * rng.uniform(-0.2, 0.2) - rng.uniform(0.2, 0.8)
        fold = np.exp(-np.abs(distance) * rng.uniform(20, 60)) * np.tanh(distance * 50)
        shade = shade - np.float32(rng.uniform(0.015, 0.05)) * (1 + fold) / 2
    return Image.merge("RGB", (grayscale(shade).resize(frame, Image.Resampling.BICUBIC),) * 3)
