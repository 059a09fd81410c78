"""Options are checked when made, and know what shapes the bytes."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.images.image import ImageOptions
from beam_jobs.options import BuildOptions
from beam_jobs.sources.source import Source
from schemas.receipt import Label

SOURCE = Source(path="/data/t.csv", format="csv", columns={}, image_root="/data")
OPTIONS = BuildOptions(source=SOURCE, output="/out/receipts")
TWICE = (Label(name="total", type="int"), Label(name="total", type="float"))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"shard_size_mb": 0}, "shard_size_mb must be at least 1, got 0"),
        ({"shards_multiple_of": 0}, "shards_multiple_of must be at least 1, got 0"),
        ({"max_bad_fraction": -0.1}, "max_bad_fraction must be 0 to 1, got -0.1"),
        ({"max_bad_fraction": 1.1}, "max_bad_fraction must be 0 to 1, got 1.1"),
        ({"max_bad_fraction": float("nan")}, "max_bad_fraction must be 0 to 1, got nan"),
        (
            {"output": "/out/a[1]/receipts"},
            "output /out/a[1]/receipts holds '[', which file systems take for a pattern: choose a "
            "path without *, ? and [",
        ),
        ({"seed": -1}, "seed must be 0 to 2**63 - 1, got -1"),
        ({"seed": 2**63}, f"seed must be 0 to 2**63 - 1, got {2**63}"),
        (
            {"shards": {"train": 0, "validation": 1}},
            "0 shards for split train: the number must be at least 1 and a multiple of "
            "`shards_multiple_of`, 1",
        ),
        (
            {"shards": {"train": 8, "validation": 6}, "shards_multiple_of": 4},
            "6 shards for split validation: the number must be at least 1 and a multiple of "
            "`shards_multiple_of`, 4",
        ),
        (
            {"shards": {"train": 8}},
            "shards are given for train, but the splits are train, validation: give a number for "
            "each split, or one for all",
        ),
        (
            {"shards": {"train": 8, "validation": 1, "test": 1}},
            "shards are given for train, validation, test, but the splits are train, validation: "
            "give a number for each split, or one for all",
        ),
        (
            {"source": replace(SOURCE, labels=TWICE)},
            "label 'total' is declared 2 times: keep one",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_options_that_are_not_allowed(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        replace(OPTIONS, **values)


@pytest.mark.parametrize(
    "splits",
    [
        pytest.param({}, id="none"),
        pytest.param({"train": 0.9}, id="too_little"),
        pytest.param({"train": 1.0, "test": 0.0}, id="empty_share"),
        pytest.param({"../train": 1.0}, id="name_is_a_path"),
    ],
)
def test_splits_that_are_not_allowed(splits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="split"):
        replace(OPTIONS, splits=splits)


@pytest.mark.parametrize(
    ("output", "staging"),
    [
        ("/out/receipts", "/out/receipts/_staging"),
        ("/out/receipts/", "/out/receipts/_staging"),
        ("gs://bucket/receipts/", "gs://bucket/receipts/_staging"),
    ],
)
def test_staging_lies_in_the_output(output: str, staging: str) -> None:
    options = replace(OPTIONS, output=output)
    assert options.staging.directory == staging
    assert options.staging.sidecar(0, bytes(16)) == f"{staging}/prepared/0000000-{'0' * 32}.npz"
    assert options.finished_directory == f"{staging}/finished-{options.launch}"


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("/", "output / is a whole file system or bucket"),
        ("", "output  is a whole file system or bucket"),
        ("//", "output // is a whole file system or bucket"),
        ("/a/..", "output /a/.. is a whole file system or bucket"),
        ("gs://bucket", "output gs://bucket is a whole file system or bucket"),
        ("s3://bucket/", "choose one in it, such as s3://bucket/receipts"),
        ("azfs://account/container", "choose one in it, such as azfs://account/container/receipts"),
        ("hdfs://", "output hdfs:// is a whole file system or bucket"),
    ],
)
def test_whole_file_systems_are_refused(output: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        replace(OPTIONS, output=output)


def test_two_launches_never_share_finished_files() -> None:
    again = BuildOptions(source=SOURCE, output="/out/receipts")
    assert again == OPTIONS
    assert again.request == OPTIONS.request
    assert again.finished_directory != OPTIONS.finished_directory


def test_recorded_options_are_those_that_shape_the_bytes() -> None:
    recorded = OPTIONS.recorded()
    assert recorded.keys() == {
        "image",
        "layout_from",
        "layout_distance",
        "merge_spellings",
        "near_duplicates",
        "compare_images",
        "fingerprints_version",
        "splits",
        "shards",
        "shard_size_mb",
        "shards_multiple_of",
        "seed",
    }
    assert recorded["splits"] == {"train": 0.9, "validation": 0.1}
    assert recorded["image"]["max_side"] == 1024
    assert json.loads(json.dumps(recorded))["seed"] == 0
    elsewhere = replace(
        OPTIONS, output="/other", source=replace(SOURCE, path="/x"), max_bad_fraction=1.0
    )
    assert elsewhere.recorded() == recorded


@pytest.mark.parametrize(
    "values",
    [
        {"seed": 1},
        {"output": "/other"},
        {"max_bad_fraction": 0.5},
        {"shards": {"train": 2, "validation": 1}},
        {"splits": {"train": 0.8, "validation": 0.2}},
        {"image": ImageOptions(quality=80)},
        {"layout_from": "none"},
        {"merge_spellings": True},
        {"source": replace(SOURCE, labels=(Label(name="total", type="int"),))},
        {"source": replace(SOURCE, columns={"image": "file"})},
    ],
    ids=lambda values: next(iter(values)),
)
def test_another_request_has_another_digest(values: dict[str, Any]) -> None:
    assert re.fullmatch("[0-9a-f]{64}", OPTIONS.request)
    assert replace(OPTIONS).request == OPTIONS.request
    assert replace(OPTIONS, **values).request != OPTIONS.request
