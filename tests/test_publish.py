"""What stops a build from publishing: records that are lost, and a deal that is not the plan's."""

from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.publish import ChunkSummary, Publisher
from beam_jobs.write import WrittenShard
from schemas.manifest import Shard
from schemas.receipt import LAYOUT
from schemas.statistics import RecordSummary


def chunk(inputs: int) -> ChunkSummary:
    return ChunkSummary(number=0, inputs=inputs, quarantined={}, clipped_boxes=0, fingerprint="")


def shard(number: int, layouts: dict[int, int]) -> WrittenShard:
    return WrittenShard(
        split="train",
        number=number,
        shard=Shard(
            name=f"shard-{number}",
            records=sum(layouts.values()),
            size_bytes=0,
            crc32c=0,
            index_name=f"index-{number}",
            index_crc32c=0,
        ),
        category_counts={LAYOUT: layouts},
        summary=RecordSummary(),
    )


def publish(folder: Path, shards: list[WrittenShard], *, inputs: int) -> None:
    publisher = Publisher(
        output=str(folder / "out"),
        staging=str(folder / "out.staging"),
        staged=str(folder / "out.staging" / "finished"),
        labels=(),
        split_names=("train",),
        build_options={},
        request="",
    )
    publisher.publish(
        inputs=inputs,
        chunks=[chunk(4)],
        shards=shards,
        duplicates=(0, 0),
        listings=[],
        vocabularies={LAYOUT: ["alpha", "beta"]},
    )


def test_rows_that_were_not_prepared(tmp_path: Path):
    with pytest.raises(BuildError, match="the source gave 5 rows, 4 were prepared"):
        publish(tmp_path, [], inputs=5)
    assert not (tmp_path / "out").exists()


def test_records_that_were_not_written(tmp_path: Path):
    with pytest.raises(ValueError, match=r"4 inputs, but 3 written \+ 0 duplicates"):
        publish(tmp_path, [shard(0, {0: 1, 1: 1}), shard(1, {0: 1})], inputs=4)
    assert not (tmp_path / "out").exists()


def test_a_shard_that_holds_what_another_was_dealt(tmp_path: Path):
    with pytest.raises(ValueError, match="shard-0 does not hold the layouts it was dealt"):
        publish(tmp_path, [shard(0, {0: 2}), shard(1, {1: 2})], inputs=4)
    assert not (tmp_path / "out").exists()
