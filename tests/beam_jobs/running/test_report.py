"""The summary and the plan: golden texts, and the warnings that belong to them."""

import re
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.running.report import (
    plan_summary,
    summary,
    warn_of_boxes,
    warn_of_narrow_images,
)
from schemas.manifest import Counts, Generation, Manifest, Shard, Split
from schemas.statistics import FeatureSummary, RecordSummary


def shards(count: int, size_bytes: int) -> tuple[Shard, ...]:
    return tuple(
        Shard(
            name="s",
            records=1,
            size_bytes=size_bytes,
            crc32c=0,
            index_crc32c=0,
            lookup_crc32c=0,
            summary_crc32c=0,
            dali_index_crc32c=0,
        )
        for _ in range(count)
    )


def manifest(
    counts: Counts, splits: dict[str, tuple[int, tuple[int, ...]]], **fractions: float
) -> Manifest:
    """A manifest of splits with (shards, records of each layout)."""
    layouts = len(next(iter(splits.values()))[1])
    generation = Generation(
        version=1,
        splits={
            name: Split(shards=shards(count, 600_000), category_counts={"layout": histogram})
            for name, (count, histogram) in splits.items()
        },
        counts=counts,
        build_options={"splits": fractions},
        source_fingerprint="",
        written_by="",
    )
    return Manifest(
        version=1,
        features=(),
        labels=(),
        vocabularies={"layout": tuple(f"shop{number}" for number in range(layouts))},
        generations=(generation,),
    )


def test_summary() -> None:
    counts = Counts(
        inputs=12_021,
        written=12_011,
        duplicates=3,
        quarantined={"too_small": 1, "corrupt": 5, "bad_row": 1},
        duplicates_with_other_labels=2,
        clipped_boxes=1_000,
    )
    splits = {"train": (4, (9_000, 1_809, 1)), "validation": (1, (1_000, 201, 0))}
    text = summary(manifest(counts, splits, train=0.9, validation=0.1), "/data/out")
    assert text == (
        "/data/out is complete\n"
        "  inputs        12,021\n"
        "  written       12,011\n"
        "  duplicates    3 (2 with other labels than the record kept)\n"
        "  quarantined   7: corrupt 5, bad_row 1, too_small 1\n"
        "  size          3.0 MB\n"
        "  clipped       1,000 boxes that reached beyond their image\n"
        "  train         10,810 records in 4 shards\n"
        "  validation    1,201 records in 1 shard\n"
        "  layouts       3, 1 of them with a single receipt\n"
        "  most common   shop0: 10,000\n"
        "  least common  shop2: 1\n"
        "  fairness      at most 0.75 of a record off a layout's fair share, in any shard\n"
    )


def test_a_summary_says_nothing_of_what_did_not_happen() -> None:
    counts = Counts(inputs=20, written=20, duplicates=0, quarantined={})
    text = summary(manifest(counts, {"train": (2, (12, 8))}, train=1.0), "out")
    assert "  duplicates    0\n" in text
    assert "  quarantined   0\n" in text
    assert "at most 0 of a record off" in text
    for word in ("clipped", "with other labels", "warning"):
        assert word not in text


def test_a_plan() -> None:
    outline: dict[str, Any] = {
        "inputs": 1_030,
        "rejected": {"layout_missing": 30},
        "layouts": ["kiosk", "zoo"],
        "counts": [[810, 90], [90, 10]],
        "old_counts": [[0, 0], [0, 0]],
        "known": 0,
        "shards": [3, 1],
    }
    assert plan_summary(outline, {"train": 0.9, "test": 0.1}, "out") == (
        "plan for out (no image was read)\n"
        "  inputs         1,030\n"
        "  to write       1,000, less duplicates and unreadable images\n"
        "  to quarantine  30: layout_missing 30\n"
        "  train          900 records in 3 shards\n"
        "  test           100 records in 1 shard\n"
        "  layouts        2, 0 of them with a single receipt\n"
        "  most common    kiosk: 900\n"
        "  least common   zoo: 100\n"
        "  fairness       at most 0 of a record off a layout's fair share, in any shard\n"
    )


def test_a_plan_needs_no_table_of_layouts_by_shards() -> None:
    layouts, shard_count = 2_000, 4_000
    outline: dict[str, Any] = {
        "inputs": 3 * layouts,
        "rejected": {},
        "layouts": [f"shop{number}" for number in range(layouts)],
        "counts": [[3]] * layouts,
        "old_counts": [[0]] * layouts,
        "known": 0,
        "shards": [shard_count],
    }
    tracemalloc.start()
    text = plan_summary(outline, {"train": 1.0}, "out")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "at most 0.99925 of a record off" in text
    assert peak_bytes < layouts * shard_count


@pytest.mark.parametrize(
    ("counts", "warnings"),
    [
        pytest.param([[9, 1], [90, 10]], [], id="as_asked_for"),
        pytest.param([[9, 1], [1, 0]], [], id="single_receipts_go_to_train"),
        pytest.param(
            [[1, 0], [1, 0]],
            [
                "warning: split test is empty: most layouts have too few receipts to share (a "
                "layout's only receipt goes to train)"
            ],
            id="empty_split",
        ),
        pytest.param(
            [[5, 5], [89, 11], [9, 1]],
            [
                "warning: keeping groups together put 2 of 3 layouts off their split shares by a "
                "receipt or more; most of all a, 5 instead of 9.0 in train"
            ],
            id="groups",
        ),
    ],
)
def test_warnings(counts: list[list[int]], warnings: list[str]) -> None:
    outline: dict[str, Any] = {
        "inputs": sum(map(sum, counts)),
        "rejected": {},
        "layouts": ["a", "b", "c"][: len(counts)],
        "counts": counts,
        "old_counts": [[0] * 2] * len(counts),
        "known": 0,
        "shards": [1, 1],
    }
    text = plan_summary(outline, {"train": 0.9, "test": 0.1}, "out")
    assert [line for line in text.splitlines() if line.startswith("warning")] == warnings


def boxes_up_to(xmax: float, ymax: float, *, boxes: int = 100) -> RecordSummary:
    """Statistics of a receipt with so many boxes, the last of which reaches farthest."""
    summary = RecordSummary()
    for side, reach in (("xmax", xmax), ("ymax", ymax)):
        sides = [reach * (number + 1) / boxes for number in range(boxes)]
        summary.add({f"image/object/bbox/{side}": sides})
    return summary


JPEG = {"encoding": "jpeg", "fit": "pad"}
PADDED = {"encoding": "raw", "fit": "pad"}
STRETCHED = {"encoding": "raw", "fit": "stretch"}


@pytest.mark.parametrize(
    ("records", "image", "reach"),
    [
        pytest.param(boxes_up_to(100 / 1800, 100 / 2400), JPEG, "4% of the height", id="percent"),
        pytest.param(
            boxes_up_to(1000 / 1800, 1000 / 2400), JPEG, "42% of the height", id="per_mille"
        ),
        pytest.param(
            boxes_up_to(1000 / 1240, 1000 / 1754),
            JPEG,
            "57% of the height",
            id="per_mille_of_a_scan",
        ),
        pytest.param(boxes_up_to(0.6, 0.5), STRETCHED, "50% of the height", id="half_the_size"),
        pytest.param(boxes_up_to(0.2, 0.5), PADDED, "50% of the height", id="padded"),
        pytest.param(boxes_up_to(0.95, 0.99), JPEG, None, id="pixels"),
        pytest.param(boxes_up_to(0.6, 0.99), PADDED, None, id="pixels_padded"),
        pytest.param(boxes_up_to(0.1, 0.1, boxes=99), JPEG, None, id="too_few"),
        pytest.param(RecordSummary(), JPEG, None, id="no_record"),
    ],
)
def test_boxes_that_are_not_in_pixels(
    records: RecordSummary, image: dict[str, str], reach: str | None
) -> None:
    expected = (
        f"warning: no box reaches beyond {reach} of its image: boxes in percent, in per mille or "
        "of an image of another size must be written in pixels\n"
    )
    assert warn_of_boxes(records, image) == (expected if reach else "")


def images_of(*sizes: tuple[int, int]) -> RecordSummary:
    """Statistics of images of these widths and heights."""
    records = RecordSummary()
    for width, height in sizes:
        for name, pixels in (("width", width), ("height", height)):
            records.features.setdefault(f"image/{name}", FeatureSummary()).add([pixels])
    return records


@pytest.mark.parametrize(
    ("sizes", "encoding", "expected"),
    [
        # As a photo of 900×1400 is stored, and rolls of 600×6000 and 400×12000.
        ([(658, 1024), (102, 1024), (34, 1024)], "jpeg", {"width": 2}),
        ([(1024, 127), (1024, 128)], "jpeg", {"height": 1}),
        ([(127, 1024), (1024, 127)], "jpeg", {"width": 1, "height": 1}),
        ([(128, 1024), (129, 1024)], "jpeg", {}),
        ([(96, 64), (64, 96)], "jpeg", {}),  # none was scaled
        ([(34, 1024)], "raw", {}),
        ([], "jpeg", {}),
    ],
)
def test_images_that_are_too_narrow(
    sizes: list[tuple[int, int]], encoding: str, expected: dict[str, int]
) -> None:
    text = warn_of_narrow_images(images_of(*sizes), {"encoding": encoding, "max_side": 1024})
    found = re.findall(r"the (width|height) of some images is below 128 pixels.*\((\d+)\)", text)
    assert dict(found) == {side: str(count) for side, count in expected.items()}
    assert len(text.splitlines()) == len(expected)


def test_numbers_that_are_there_twice() -> None:
    counts = Counts(inputs=4, written=4, duplicates=0, quarantined={})
    made = manifest(counts, {"train": (1, (1, 1, 1, 1))}, train=1.0)
    for layouts, warning in (
        (
            ("7", "7.0", "8", "9.0"),
            "layout has numbers with and without .0, such as 7 and 7.0: ",
        ),
        (("1.0", "2.0", "2.1", "3.0"), ""),
        (("a", "a.0", "b", "c"), ""),
    ):
        text = summary(replace(made, vocabularies={"layout": layouts}), "out")
        assert (f"warning: {warning}" in text) == bool(warning)
        assert ("without .0" in text) == bool(warning)


def test_long_names_are_cut() -> None:
    counts = Counts(inputs=2, written=2, duplicates=0, quarantined={})
    made = manifest(counts, {"train": (1, (1, 1))}, train=1.0)
    names = ("a" * 10**6, "b" * 10**6)
    made = replace(made, vocabularies={"layout": names})
    text = summary(made, "out", {names[0]: names[1]})
    assert "'aaa" in text
    assert len(text) < 1500
