"""Datasets of several versions: what they are built from, and what they hold."""

from pathlib import Path

from schemas.file_names import version_file
from schemas.manifest import Manifest
from tests.support.dataset_files import manifest_of, records_of
from tests.support.receipts import write_table

LABELS = ("--label=total:float", "--label=language:category")
LAYOUTS = {"beta": 30, "delta": 17, "kiosk": 6, "one": 1, "aral": 9, "two": 2}


def table_of(folder: Path, name: str, rows: list[dict]) -> Path:
    """Writes a table of some rows; returns its path."""
    folder.mkdir(exist_ok=True)
    return write_table(folder / f"{name}.jsonl", rows)


def version_of(directory: Path, version: int) -> Manifest:
    """Returns the manifest of a version."""
    path = directory / version_file(version, "manifest.json")
    return Manifest.from_json(path.read_bytes())


def truth_of(directory: Path) -> dict[str, dict]:
    """All records by id, without what depends on the order in which layouts came."""
    records = [
        record
        for split in manifest_of(directory).splits
        for shard in records_of(directory, split)
        for record in shard
    ]
    by_id = {
        record["image/source_id"]: {k: v for k, v in record.items() if not k.endswith("_id")}
        for record in records
    }
    assert len(by_id) == len(records)
    return by_id
