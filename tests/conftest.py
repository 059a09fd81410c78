"""Shared fixtures: small drawn receipts, and a dataset built from them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

SROIE = Path(__file__).parents[2] / "shared" / "data" / "sroie"
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


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table of 44 small receipts in 7 layouts."""
    return write_receipts(tmp_path_factory.mktemp("receipts"))


@pytest.fixture(scope="session")
def build() -> Callable[..., int]:
    """Runs the build in this process, on one worker, without a progress bar."""
    pytest.importorskip("apache_beam")
    from beam_jobs.build import main

    def run(source: Path, output: Path, *options: str) -> int:
        workers = () if any(o.startswith("--workers") for o in options) else ("--workers=1",)
        return main(
            ["--input", str(source), "--output", str(output), "--quiet", *workers, *options]
        )

    return run


@pytest.fixture(scope="session")
def dataset(
    table: Path, build: Callable[..., int], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A dataset directory built from `table`; tests must not change it."""
    output = tmp_path_factory.mktemp("dataset") / "receipts"
    labels = ("--label", "total:float", "--label", "language:category")
    assert build(table, output, "--shards", "4", *labels) == 0
    return output


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks measure here: starting TensorFlow some twenty times would take minutes."""
    from benchmarks import timing
    from pipeline import strategies

    monkeypatch.setattr(timing, "in_new_process", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(strategies, "make_logical_cpus", lambda count: None)
