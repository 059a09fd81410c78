"""Evidence of one purchase: too little to drop a receipt, or images of which text was misread."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.verify import verify
from tests.support.dataset_files import manifest_of, split_of
from tests.support.duplicates import listed, pairs_of
from tests.support.grown import table_of
from tests.support.printed import print_receipt
from tests.support.receipts import draw_receipt

SPLITS = "--splits=train=0.5,validation=0.5"
CAR_PARK = [
    "CITY PARKING SDN BHD (123456-X)",
    "12 JALAN RAJA 50480 KUALA LUMPUR",
    "TEL 03-2612345",
    "GST 000123456789",
]
CAFE = ["COFFEE HOUSE (812345-T) 58000 KUALA LUMPUR", "2018-05-03 08:15:27 BILL 20417"]
PRICES = [f"{price}.{price}" for price in range(11, 19)]


def row_of(image: Path, layout: str, lines: Sequence[str], seed: int | None = None) -> dict:
    """Row of a receipt with this text; its image is drawn where there is a seed."""
    if seed is not None:
        draw_receipt(image, seed)
    box = {"xmin": 0, "ymin": 0, "xmax": 9, "ymax": 9}
    return {
        "id": image.stem,
        "image": str(image),
        "layout": layout,
        "boxes": [{**box, "text": line} for line in lines],
    }


def test_nothing_is_dropped_for_want_of_evidence(build, tmp_path: Path):
    """Nobody can tell 30 tickets apart that have a fixed price, and no time or number."""
    tickets = [
        row_of(
            tmp_path / f"ticket-{number}.png",
            "park",
            [*CAR_PARK, f"DATE {number // 10 + 1:02d}/03/2018", "TOTAL RM 2.00"],
            seed=number,
        )
        for number in range(30)
    ]
    equal = [
        row_of(tmp_path / f"equal-{number}.png", "cafe", [*CAFE, *PRICES], seed=100 + number)
        for number in range(10)
    ]
    cropped = row_of(tmp_path / "cropped.png", "cafe", [*CAFE, *PRICES[:-1]], seed=200)
    table, out = table_of(tmp_path, "rows", [*tickets, *equal, cropped]), tmp_path / "out"
    assert build(table, out, "--shards=1", SPLITS, "--near-duplicates=drop") == 0
    splits = split_of(out)
    assert {row["id"] for row in tickets} <= splits.keys()
    [kept] = {row["id"] for row in equal} & splits.keys()
    counts = manifest_of(out).counts
    assert (counts.written, counts.duplicates) == (32, 9)
    assert {line["duplicate_of"] for line in listed(out, name="duplicates")} == {kept}
    assert splits["cropped"] == splits[kept]
    outcomes = {line["outcome"] for line in listed(out) if "cropped" in line.values()}
    assert outcomes <= {"grouped", "settled"}
    of_tickets = [line for line in listed(out) if line["id"].startswith("ticket")]
    assert of_tickets
    assert {line["outcome"] for line in of_tickets} == {"grouped"}
    assert list(verify(str(out), workers=1)) == []


def test_images_are_compared_where_their_text_was_misread(build, tmp_path: Path):
    """Six numbers are read from each image, and three of them otherwise from its copy."""
    rows = []
    for number in range(12):
        image = print_receipt(["99 SPEED MART", "Lot 2811, Jalan Angsa"], seed=number)
        image.save(tmp_path / f"{number}.png")
        image.save(tmp_path / f"{number}-again.jpg", quality=60)
        lines = [f"{number + 10}{price}.{price}5" for price in range(6)]
        again = [line[:-1] + "S" if place % 2 else line for place, line in enumerate(lines)]
        rows.append(row_of(tmp_path / f"{number}.png", "mart", lines))
        rows.append(row_of(tmp_path / f"{number}-again.jpg", "mart", again))
    table, expected = table_of(tmp_path, "rows", rows), set()
    for number in range(12):
        with Image.open(tmp_path / f"{number}-again.jpg") as image:
            assert image.format == "JPEG"
        expected.add(frozenset((str(number), f"{number}-again")))
    assert build(table, tmp_path / "numbers", "--shards=1", SPLITS) == 0
    assert listed(tmp_path / "numbers") == []
    assert build(table, tmp_path / "images", "--shards=1", SPLITS, "--compare-images") == 0
    lines = listed(tmp_path / "images")
    assert pairs_of(lines) == expected
    assert all(line["differing_bits"] <= 80 for line in lines)
    splits = split_of(tmp_path / "images")
    assert all(len({splits[id_] for id_ in pair}) == 1 for pair in expected)
