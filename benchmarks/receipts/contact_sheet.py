"""Many receipts on one picture, to be looked at."""

import json
from pathlib import Path

from PIL import Image, ImageOps

_COLUMNS, _ROWS = 10, 5
_CELL = (240, 340)
_GAP = 6


def contact_sheet(records: Path, sheet: Path) -> Path:
    """Draws the first receipt of each layout, then others, side by side.

    Args:
      records: the `receipts.jsonl` of a corpus.
      sheet: the image to write; its suffix chooses the format.

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
    chosen = [*first, *rest][: _COLUMNS * _ROWS]
    down = -(-len(chosen) // _COLUMNS)
    pitch = (_CELL[0] + _GAP, _CELL[1] + _GAP)
    canvas = Image.new("RGB", (_COLUMNS * pitch[0] + _GAP, down * pitch[1] + _GAP), (40, 40, 44))
    for place, entry in enumerate(chosen):
        with Image.open(records.parent / str(entry["image"])) as image:
            picture = ImageOps.exif_transpose(image).convert("RGB")
        picture.thumbnail(_CELL, Image.Resampling.LANCZOS)
        x = _GAP + place % _COLUMNS * pitch[0] + (_CELL[0] - picture.width) // 2
        y = _GAP + place // _COLUMNS * pitch[1] + (_CELL[1] - picture.height) // 2
        canvas.paste(picture, (x, y))
    canvas.save(sheet)
    return sheet
