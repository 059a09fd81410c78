"""Many receipts on one picture, to be looked at."""

import json
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageOps

_CELL = (240, 340)
_GAP = 6


def contact_sheet(
    records: Path, sheet: Path, *, columns: int = 10, rows: int = 5, boxes: bool = False
) -> Path:
    """Draws the first receipt of each layout, then others, side by side.

    Args:
      records: the `receipts.jsonl` of a corpus.
      sheet: the image to write; its suffix chooses the format.
      columns: pictures across.
      rows: pictures down, at most.
      boxes: whether to draw the texts' boxes over the pictures.

    Returns:
      `sheet`.
    """
    entries = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    seen: set[str] = set()
    first: list[dict[str, object]] = []
    rest: list[dict[str, object]] = []
    for entry in entries:
        (rest if entry["layout"] in seen else first).append(entry)
        seen.add(entry["layout"])
    chosen = [*first, *rest][: columns * rows]
    down = -(-len(chosen) // columns)
    pitch = (_CELL[0] + _GAP, _CELL[1] + _GAP)
    canvas = Image.new("RGB", (columns * pitch[0] + _GAP, down * pitch[1] + _GAP), (40, 40, 44))
    for place, entry in enumerate(chosen):
        picture = picture_with_boxes(records.parent, entry, boxes=boxes)
        picture.thumbnail(_CELL, Image.Resampling.LANCZOS)
        x = _GAP + place % columns * pitch[0] + (_CELL[0] - picture.width) // 2
        y = _GAP + place // columns * pitch[1] + (_CELL[1] - picture.height) // 2
        canvas.paste(picture, (x, y))
    canvas.save(sheet)
    return sheet


def picture_with_boxes(root: Path, entry: dict[str, Any], *, boxes: bool = True) -> Image.Image:
    """One receipt, upright, with its texts' boxes in red.

    Args:
      root: the corpus's directory.
      entry: a line of its `receipts.jsonl`.
      boxes: whether to draw them; they are drawn on the pixels as stored.
    """
    with Image.open(root / str(entry["image"])) as image:
        exif = image.getexif()
        picture = image.convert("RGB")
    if boxes:
        draw = ImageDraw.Draw(picture)
        width = max(1, picture.width // 700)
        for box in entry["boxes"]:
            edges = [box[edge] for edge in ("xmin", "ymin", "xmax", "ymax")]
            draw.rectangle(edges, outline=(230, 30, 30), width=width)
    picture.info["exif"] = exif.tobytes()
    return ImageOps.exif_transpose(picture)
