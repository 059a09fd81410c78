"""Inputs as systems, tools and people write them: told before images are read, or read rightly."""

import unicodedata
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from tests.support.dataset_files import manifest_of, records_of
from tests.support.receipts import draw_receipt, write_table

MEGABYTE = "x" * (1 << 20)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_systems_put_into_folders_is_counted(tmp_path: Path, build, capfd, workers: str):
    for number in range(8):
        draw_receipt(tmp_path / "in" / "shop" / f"{number}.jpg", number)
        thumbnails = tmp_path / "in" / "shop" / "@eaDir" / f"{number}.jpg"
        draw_receipt(thumbnails / "SYNOPHOTO_THUMB_M.jpg", 100 + number)
    draw_receipt(tmp_path / "in" / "$RECYCLE.BIN" / "S-1" / "$RAB12.jpg", 200)
    (tmp_path / "in" / ".DS_Store").write_bytes(b"x")
    assert build(tmp_path / "in", tmp_path / "out", f"--workers={workers}") == 0
    assert "  3 system files or folders were skipped" in capfd.readouterr().out
    manifest = manifest_of(tmp_path / "out")
    assert (manifest.counts.inputs, manifest.counts.written) == (8, 8)
    assert manifest.vocabularies["layout"] == ("shop",)


def test_a_group_is_not_parted_by_its_spelling(tmp_path: Path, build):
    """Half of the receipts come from a Mac, some of the table's numbers from pandas."""
    nfc, nfd = (unicodedata.normalize(form, "José") for form in ("NFC", "NFD"))
    for part in range(2):
        rows = []
        for number in range(40):
            name = f"{part}-{number}.jpg"
            draw_receipt(tmp_path / name, 100 * part + number)
            group = (nfc, nfd, 7, 7.0, "7.0")[number % 5]
            rows.append({"image": name, "layout": (nfc, nfd)[number % 2], "group": group})
        table = write_table(tmp_path / f"{part}.jsonl", rows)
        first = ("--append",) if part else ("--splits=train=0.5,validation=0.5",)
        assert build(table, tmp_path / "out", "--near-duplicates=off", "--shards=1", *first) == 0
        if part == 0:
            wanted = groups_by_split(tmp_path / "out")
            assert sorted(map(sorted, wanted.values())) == [["7"], [nfc]]
    assert groups_by_split(tmp_path / "out") == wanted
    assert manifest_of(tmp_path / "out").vocabularies["layout"] == (nfc,)


def groups_by_split(directory: Path) -> dict[str, set[str]]:
    return {
        split: {
            record["receipt/group"] for shard in records_of(directory, split) for record in shard
        }
        for split in manifest_of(directory).splits
    }


@pytest.mark.parametrize("allowed", ["0.05", "0.95"], ids=["refused", "quarantined"])
def test_a_value_of_a_megabyte_fills_nothing(tmp_path: Path, build, capfd, allowed: str):
    draw_receipt(tmp_path / "a.jpg", 1)
    odd = [
        {"image": MEGABYTE},
        {"image": f"data:image/png;base64,{MEGABYTE}"},
        {"image": {"bytes": MEGABYTE}},
        {"id": MEGABYTE},
        {"layout": MEGABYTE},
        {"group": [MEGABYTE]},
        {"currency": MEGABYTE},
        {"total": MEGABYTE},
        {"boxes": MEGABYTE},
        {"boxes": [{"xmin": 5, "ymin": 5, "xmax": 5, "ymax": 9, "text": MEGABYTE}]},
        {MEGABYTE: 1, "layout": None},
    ]
    good = {"image": "a.jpg", "id": "a", "layout": "x", "currency": "EUR", "total": 1.5}
    rows = [good, *({**good, "id": f"odd-{n}", **values} for n, values in enumerate(odd))]
    table = write_table(tmp_path / "t.jsonl", rows)
    labels = ("--label=currency:category", "--label=total:float", f"--max-bad-fraction={allowed}")
    published = build(table, tmp_path / "out", *labels) == 0
    assert published == (allowed == "0.95")
    printed = capfd.readouterr()
    assert len(printed.out + printed.err) < 4000
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert written
    assert sum(path.stat().st_size for path in written) < 3 * len(MEGABYTE)
    if published:
        quarantined = manifest_of(tmp_path / "out").counts.quarantined
        assert sum(quarantined.values()) == len(odd)
