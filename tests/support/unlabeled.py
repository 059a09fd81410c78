"""Receipts of some shops without a layout, and the layouts that were found for them."""

from pathlib import Path

from tests.support.dataset_files import manifest_of, records_of
from tests.support.receipts import draw_receipt

SHOPS = {
    "bakery": ["BÄCKEREI MÜLLER", "Marktplatz 3, 80331 München", "Tel. 089 123"],
    "aldi": ["ALDI SÜD", "Hauptstr. 12, 50667 Köln", "Mo-Sa 8-20 Uhr"],
    "kiosk": ["KIOSK AM DOM", "Domplatz 1", "UST-ID DE 99"],
    "mart": ["99 SPEED MART S/B", "LOT P.T. 2811, JALAN ANGSA", "KUALA LUMPUR"],
}


def receipts(folder: Path, counts: dict[str, int], *, first: int = 0) -> list[dict]:
    """Rows without a layout; every third text has a typing error, and numbers differ."""
    rows = []
    for shop, count in counts.items():
        for number in range(count):
            id_ = f"{shop}-{first + number}"
            boxes = draw_receipt(folder / f"{id_}.jpg", hash_of(shop) + first + number)
            lines = [line.replace("1", str(first + number)) for line in SHOPS.get(shop, [""] * 3)]
            if number % 3 == 2:
                lines[0] = lines[0][:4] + lines[0][5:]
            for box, line in zip(boxes, lines, strict=True):
                box["text"] = line
            rows.append({"id": id_, "image": str(folder / f"{id_}.jpg"), "boxes": boxes})
    return rows


def hash_of(shop: str) -> int:
    return 1000 * sum(map(ord, shop))


def layout_of(directory: Path) -> dict[str, str]:
    """Layout of each receipt, by id."""
    return {
        record["image/source_id"]: record["receipt/layout"]
        for split in manifest_of(directory).splits
        for shard in records_of(directory, split)
        for record in shard
    }
