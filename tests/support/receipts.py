"""Small drawn receipts, their tables, and the contents of directories."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SROIE = Path(__file__).parents[3] / "shared" / "data" / "sroie"
LONG_TAIL = {"alpha": 23, "beta": 11, "gamma": 5, "delta": 2, "epsilon": 1, "zeta": 1, "eta": 1}


def draw_receipt(path: Path, number: int, *, size: tuple[int, int] = (96, 160)) -> list[dict]:
    """Draws a receipt that no other number gives, and returns its boxes."""
    rng = np.random.default_rng(number)
    image = Image.fromarray(rng.integers(220, 256, (size[1], size[0], 3), dtype=np.uint8))
    draw = ImageDraw.Draw(image)
    boxes = []
    for line in range(3):
        xmin, ymin = 8 + int(rng.integers(0, 20)), 20 + 40 * line
        boxes.append(
            {"xmin": xmin, "ymin": ymin, "xmax": xmin + 50, "ymax": ymin + 14, "text": f"l{line}"}
        )
        draw.rectangle((xmin, ymin, xmin + 49, ymin + 13), fill=(20, 20, 20))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=92) if path.suffix == ".jpg" else image.save(path)
    return boxes


def write_receipts(folder: Path, layouts: Mapping[str, int] = LONG_TAIL, *, first: int = 0) -> Path:
    """Writes receipts and their table of JSON lines; returns the table."""
    rows = []
    for layout, count in layouts.items():
        for number in range(count):
            id_ = f"{layout}-{number}"
            boxes = draw_receipt(folder / "images" / f"{id_}.jpg", first + len(rows))
            rows.append(
                {
                    "id": id_,
                    "image": f"images/{id_}.jpg",
                    "layout": layout,
                    "total": 1.5 + len(rows),
                    "language": "en" if len(rows) % 3 else "de",
                    "boxes": boxes,
                }
            )
    return write_table(folder / "receipts.jsonl", rows)


def write_table(path: Path, rows: list[dict]) -> Path:
    """Writes rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_table(path: Path) -> list[dict]:
    """Reads JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(directory: Path) -> dict[str, bytes]:
    """All files below a directory: relative path to bytes."""
    found = {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    assert found, f"{directory} is empty"
    return found
