"""Fonts that come with Python packages; a file is opened when a font is first drawn with."""

from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from PIL import ImageFont

# family: package, folder inside it, regular file, bold file
_FILES = {
    "mono": ("matplotlib", "mpl-data/fonts/ttf", "DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"),
    "sans": ("matplotlib", "mpl-data/fonts/ttf", "DejaVuSans.ttf", "DejaVuSans-Bold.ttf"),
    "serif": ("matplotlib", "mpl-data/fonts/ttf", "DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf"),
    "roboto": ("font_roboto", "files", "Roboto-Regular.ttf", "Roboto-Bold.ttf"),
    "source_sans": (
        "font_source_sans_pro",
        "files",
        "SourceSansPro-Regular.ttf",
        "SourceSansPro-Bold.ttf",
    ),
    "source_serif": (
        "font_source_serif_pro",
        "files",
        "SourceSerifPro-Regular.ttf",
        "SourceSerifPro-Bold.ttf",
    ),
    "caladea": ("font_caladea", "files", "Caladea-Regular.ttf", "Caladea-Bold.ttf"),
}
_REFERENCE = "0123456789 ABCDEFGHIJKLMNOPRSTUV abcdefghijklmnoprstuv"


@lru_cache(maxsize=128)
def font(family: str, *, bold: bool, size: float) -> ImageFont.FreeTypeFont:
    """A font of `size` pixels an em.

    Raises:
      ModuleNotFoundError: the package with the font's file is not installed.
    """
    # The basic layout engine: no library outside of Pillow's wheel decides on the pixels.
    return ImageFont.truetype(_path(family, bold), size, layout_engine=ImageFont.Layout.BASIC)


@cache
def mean_advance(family: str, *, bold: bool) -> float:
    """Mean width of a character of the family, in ems."""
    return font(family, bold=bold, size=100).getlength(_REFERENCE) / len(_REFERENCE) / 100


@cache
def _path(family: str, bold: bool) -> Path:
    package, folder, *names = _FILES[family]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            f"the font family {family!r} needs the package {package!r}, which is not installed;"
            f" install it with: pip install {package.replace('_', '-')}"
        )
    return Path(spec.origin).parent / folder / names[bold]
