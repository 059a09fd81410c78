"""Figures as arrays of pixels, and names that fit into them."""

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Picture = npt.NDArray[np.uint8]  # [height, width, 3]

DPI = 100
_NAME_LENGTH = 22


def render(figure: Figure) -> Picture:
    """Draws a figure to pixels, uint8 [height, width, 3], without matplotlib's global state."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def shorten(name: str) -> str:
    """Cuts a name off at 22 characters."""
    return name if len(name) <= _NAME_LENGTH else f"{name[: _NAME_LENGTH - 1]}…"
