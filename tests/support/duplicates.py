"""Listings of duplicates and near-duplicates in a dataset directory."""

import json
from pathlib import Path


def listed(directory: Path, version: int = 1, name: str = "near_duplicates") -> list[dict]:
    files = sorted((directory / f"versions/{version:05d}/duplicates").glob(f"{name}.jsonl-*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def pairs_of(lines: list[dict]) -> set[frozenset[str]]:
    return {frozenset((line["id"], line["near_duplicate_of"])) for line in lines}
