"""Corpora are reproducible, and their ground truth is exact."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.receipts import generate
from benchmarks.receipts.corpus import RECORDS_NAME, Corpus, draw_receipt

COUNT = 100
EDGES = ("xmin", "ymin", "xmax", "ymax")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out_dir = tmp_path_factory.mktemp("receipts") / "corpus"
    return generate(out_dir, count=COUNT, layouts=30, seed=4, size="small", workers=1).parent


@pytest.fixture(scope="module")
def records(corpus: Path) -> list[dict[str, Any]]:
    lines = (corpus / RECORDS_NAME).read_text(encoding="utf-8").splitlines()
    assert len(lines) == COUNT
    return [json.loads(line) for line in lines]


def test_same_bytes_for_any_worker_count_and_length(corpus: Path, tmp_path: Path) -> None:
    part = generate(tmp_path / "part", count=17, layouts=30, seed=4, size="small", workers=2)
    names = sorted(path.name for path in (part.parent / "images").iterdir())
    assert len(names) == 17
    for name in names:
        assert (part.parent / "images" / name).read_bytes() == (
            corpus / "images" / name
        ).read_bytes()
    whole = (corpus / RECORDS_NAME).read_text().splitlines()
    assert part.read_text().splitlines() == whole[:17]


def test_second_photos_are_of_the_same_purchase_in_another_scene(
    corpus: Path, records: list[dict[str, Any]], tmp_path: Path
) -> None:
    table = generate(
        tmp_path / "twice", count=9, layouts=30, seed=4, size="small", second_photos=0.3, workers=2
    )
    lines = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
    assert lines[:9] == records[:9]
    assert [line["photo_of"] for line in lines[9:]] == [
        "receipt-0000000",
        "receipt-0000003",
        "receipt-0000006",
    ]
    for second in lines[9:]:
        first = next(line for line in lines if line["id"] == second["photo_of"])
        assert second["id"] == f"{first['id']}-photo-2"
        for name in ("layout", "group", "company", "date", "total", "language"):
            assert second[name] == first[name]
        images = [(table.parent / line["image"]).read_bytes() for line in (first, second)]
        assert images[0] != images[1]
        texts = [{box["text"] for box in line["boxes"]} for line in (first, second)]
        assert len(texts[0] & texts[1]) > 0.7 * len(texts[0] | texts[1])


def test_another_seed_is_another_corpus() -> None:
    first, second = (draw_receipt(Corpus(seed=seed, size="small"), 0) for seed in (0, 1))
    assert first.data != second.data


def test_records_are_sorted_complete_and_inside_their_images(
    corpus: Path, records: list[dict[str, Any]]
) -> None:
    assert [record["id"] for record in records] == sorted(record["id"] for record in records)
    assert {path.name for path in (corpus / "images").iterdir()} == {
        Path(record["image"]).name for record in records
    }
    for record in records:
        with Image.open(corpus / record["image"]) as image:
            image.load()
            width, height = image.size
        assert 0.29e6 <= width * height <= 0.51e6
        assert len(record["boxes"]) >= 8
        for box in record["boxes"]:
            assert box["text"] == box["text"].strip() != ""
            assert 0 <= box["xmin"] < box["xmax"] <= width, record["id"]
            assert 0 <= box["ymin"] < box["ymax"] <= height, record["id"]


def test_boxes_cover_darker_pixels_than_their_surroundings(
    corpus: Path, records: list[dict[str, Any]]
) -> None:
    for record in records:
        with Image.open(corpus / record["image"]) as image:
            pixels = np.asarray(image.convert("L"), dtype=float)
        contrasts = []
        for box in record["boxes"]:
            xmin, ymin, xmax, ymax = (round(box[edge]) for edge in EDGES)
            inside = pixels[ymin:ymax, xmin:xmax]
            if inside.size:
                contrasts.append(np.percentile(inside, 95) - np.percentile(inside, 5))
        # Each box holds both ink and paper.
        assert np.median(contrasts) > 12, record["id"]


def test_groups_have_one_company_and_mostly_one_layout(records: list[dict[str, Any]]) -> None:
    companies: dict[str, set[str]] = defaultdict(set)
    layouts: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        companies[record["group"]].add(record["company"])
        layouts[record["group"]][record["layout"]] += 1
    assert len(companies) > 10
    assert all(len(names) == 1 for names in companies.values())
    at_home = sum(max(counts.values()) for counts in layouts.values())
    assert at_home >= 0.9 * COUNT
