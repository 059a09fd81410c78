"""The photograph or scan of a receipt: everything but the receipt."""

from dataclasses import dataclass

import numpy as np

from benchmarks.receipts.randomness import chance, pick_weighted

SIZES = ("photo", "small")
LIGHTINGS = ("daylight", "lamp", "office", "dim", "flash", "scanner")
BACKGROUNDS = ("wood", "cloth", "dark", "plain", "stone", "checked")
_MEGAPIXELS = {"photo": (0.3, 12.0), "small": (0.3, 0.5)}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One picture's circumstances.

    Attributes:
      style: "phone" (paper on a table), "crop" (cut close to the paper) or "scan".
      megapixels: size of the image, in millions of pixels.
      frame_aspect: height over width of the frame; None follows the paper.
      fill: share of the frame's width or height that the printed part takes.
      angle: turn of the paper, degrees.
      tilt: yaw and pitch of the camera, degrees.
      blur: radius, as a share of a body character's width.
      noise: standard deviation of the sensor's noise, in levels of 255.
      grayscale: whether the file has one channel.
    """

    style: str
    lighting: str
    background: str
    megapixels: float
    frame_aspect: float | None
    fill: float
    angle: float
    tilt: tuple[float, float]
    blur: float
    noise: float
    grayscale: bool


def draw_scene(rng: np.random.Generator, *, size: str, paper_aspect: float) -> Scene:
    """A scene for a receipt whose paper is `paper_aspect` times as high as it is wide.

    Args:
      rng: where the scene comes from.
      size: one of `SIZES`.
      paper_aspect: height over width.
    """
    style = pick_weighted(rng, {"phone": 0.5, "crop": 0.28, "scan": 0.22})
    if style == "phone" and paper_aspect > 3:
        style = "crop"  # people step back or cut: a long roll fills no 4:3 frame
    scan = style == "scan"
    turned = chance(rng, 0.15)
    spread = 0.6 if scan else (9.0 if turned else 2.5)
    lighting = pick_weighted(
        rng, {"daylight": 0.34, "lamp": 0.24, "office": 0.2, "dim": 0.12, "flash": 0.1}
    )
    aspect = None
    if style == "phone":
        aspect = pick_weighted(rng, {4 / 3: 0.72, 16 / 9: 0.2, 3 / 4: 0.08})
    tilt = (0.0, 0.0) if scan else (float(rng.normal(0, 6)), float(rng.normal(0, 8)))
    noise = rng.uniform(0.5, 2.0) if scan else rng.uniform(1.5, 5.0)
    return Scene(
        style=style,
        lighting="scanner" if scan else lighting,
        background="plain" if scan else pick_weighted(rng, dict.fromkeys(BACKGROUNDS, 1.0)),
        megapixels=_megapixels(rng, size),
        frame_aspect=aspect,
        fill=float(rng.uniform(0.78, 0.95) if style == "phone" else rng.uniform(0.9, 0.985)),
        angle=float(np.clip(rng.normal(0, spread), -25, 25)),
        tilt=(float(np.clip(tilt[0], -14, 14)), float(np.clip(tilt[1], -18, 18))),
        blur=float(rng.uniform(0, 0.05) if scan else rng.uniform(0.01, 0.11)),
        noise=float(noise * (1.8 if lighting == "dim" and not scan else 1)),
        grayscale=chance(rng, 0.4 if scan else 0.06),
    )


def _megapixels(rng: np.random.Generator, size: str) -> float:
    low, high = _MEGAPIXELS[size]
    if size == "small":
        return float(rng.uniform(low * 1.1, high * 0.95))
    if chance(rng, 0.02):
        return float(rng.uniform(7.0, high * 0.99))
    return float(np.clip(rng.lognormal(np.log(1.0), 0.6), low * 1.05, high * 0.99))
