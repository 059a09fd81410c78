"""Random rows of a table: receipts, repetitions of receipts, and what a build has to reject."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

_ENDS = ("", "", "", "é", "/a", "#%", "日本", " b")
_SHOPS = ("Alpha Mart", "Beta Foods", "Gamma Kiosk", "Delta Fuel Oil")

Row = dict[str, Any]


@dataclass
class RandomRows:
    """Makes tables, and the files of their images in a folder.

    No id and no payer is a part of another one, so that their traces can be looked for.
    """

    rng: random.Random
    folder: Path
    made: list[Row] = field(default_factory=list)

    def table(self, count: int) -> list[Row]:
        """Makes rows, some of which were made before, changed or not, or come twice."""
        rows = []
        for _ in range(count):
            if self.made and self.rng.random() < 0.25:
                row = dict(self.rng.choice(self.made))
                if self.rng.random() < 0.2:
                    row["total"] = 777.25
            else:
                row = self._row()
            rows.extend([row] * (2 if self.rng.random() < 0.02 else 1))
        self.made.extend(rows)
        return rows

    def _row(self) -> Row:
        rng, number = self.rng, len(list(self.folder.iterdir()))
        image = f"{number}{rng.choice(['.jpg', '.jpg', '.png'])}"
        self._write_image(self.folder / image)
        row = {
            "id": f"q{number}z{rng.choice(_ENDS)}",
            "image": image,
            "layout": f"shop {int(rng.expovariate(0.3))}",
            "total": round(rng.uniform(-5, 500), 2),
            "shop": rng.choice(_SHOPS),
            "payer": f"P{number}P",
            "group": f"g{rng.randrange(12)}" if rng.random() < 0.3 else "",
            "boxes": list(self._boxes()) if rng.random() < 0.9 else [],
        }
        if rng.random() < 0.03:
            row["total"] = "much"
        if rng.random() < 0.02:
            del row["layout"]
        return row

    def _boxes(self) -> Iterator[Row]:
        numbers = [f"{self.rng.randrange(10, 99)}.{self.rng.randrange(10, 99)}" for _ in range(8)]
        for line, text in enumerate([self.rng.choice(_SHOPS), *numbers]):
            yield {"xmin": 1, "ymin": line, "xmax": 20, "ymax": line + 2, "text": text}

    def _write_image(self, path: Path) -> None:
        """Writes an image of random squares, a copy of an earlier one, or no image at all."""
        kind, earlier = self.rng.random(), sorted(self.folder.glob(f"*{path.suffix}"))
        if kind < 0.07 and earlier:
            path.write_bytes(self.rng.choice(earlier).read_bytes())
        elif kind < 0.1:
            path.write_bytes(b"no image")
        else:
            squares = Image.frombytes("L", (6, 6), self.rng.randbytes(36))
            image = squares.resize((24, 24), Image.Resampling.NEAREST)
            image.convert(self.rng.choice(["L", "RGB"])).save(path, quality=95)
