"""Nothing is published where records are lost, or dealt otherwise than the plan says."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.prepare.staging import Staging
from beam_jobs.sharding.deal import Plan
from beam_jobs.writing.chunk_summary import ChunkSummary
from beam_jobs.writing.publish import Publisher
from beam_jobs.writing.shards import WrittenShard
from schemas.file_names import COMPLETED, shard_name
from schemas.manifest import Shard
from schemas.receipt import LAYOUT
from schemas.vocabulary import Vocabulary


def chunk(inputs: int) -> ChunkSummary:
    return ChunkSummary(
        number=0, inputs=inputs, quarantined={}, known=0, clipped_boxes=0, fingerprint=""
    )


def shard(number: int, records: int = 2) -> WrittenShard:
    return WrittenShard(
        split="train",
        number=number,
        shard=Shard(
            name=shard_name("train", number),
            records=records,
            size_bytes=0,
            crc32c=0,
            index_crc32c=0,
            lookup_crc32c=0,
            summary_crc32c=0,
            dali_index_crc32c=0,
        ),
    )


PLAN = Plan(
    split_names=("train",),
    quota_ends=np.array([[2], [1], [1]]),
    counts=np.array([[2], [1], [1]]),
    shards=np.array([2]),
)


def publish(
    folder: Path,
    shards: list[WrittenShard],
    *,
    inputs: int = 4,
    prepared: int = 4,
    counts: tuple[int, ...] = (2, 1, 1),
) -> None:
    publisher = Publisher(
        staging=Staging(str(folder / "out")),
        labels=(),
        split_names=("train",),
        build_options={},
        request="",
        launch="",
    )
    publisher.publish(
        PLAN,
        inputs=inputs,
        chunks=[chunk(prepared)],
        shards=shards,
        summaries={},
        category_counts={("train", LAYOUT): np.array(counts)},
        duplicates=(0, 0),
        near_duplicates=None,
        listings=[],
        vocabularies={LAYOUT: Vocabulary(("alpha", "beta", "gamma"))},
    )


def test_rows_that_were_not_prepared(tmp_path: Path):
    with pytest.raises(BuildError, match="the source has 5 rows, but 4 were prepared"):
        publish(tmp_path, [], inputs=5)
    assert not (tmp_path / "out" / COMPLETED).exists()


def test_records_that_were_not_written(tmp_path: Path):
    with pytest.raises(ValueError, match=r"5 inputs, but 4 written \+ 0 duplicates"):
        publish(tmp_path, [shard(0), shard(1)], inputs=5, prepared=5)
    assert not (tmp_path / "out" / COMPLETED).exists()


ONCE = "of the 2 shards of split train were written once"
COUNTED = "records of split train was not counted once each"


@pytest.mark.parametrize(
    ("shards", "counts", "sentence"),
    [
        pytest.param([shard(0)], (2, 1, 1), f"1 {ONCE}", id="a_shard_is_missing"),
        pytest.param([shard(0)] * 2, (2, 1, 1), f"0 {ONCE}", id="a_shard_is_repeated"),
        pytest.param([shard(0), shard(2)], (2, 1, 1), f"1 {ONCE}", id="a_shard_of_another_plan"),
        pytest.param([shard(0), shard(1, 1)], (2, 1, 1), f"3 {COUNTED}", id="a_record_is_missing"),
        pytest.param([shard(0), shard(1)], (2, 1), f"4 {COUNTED}", id="a_count_is_missing"),
        pytest.param([shard(0), shard(1)], (2, 2, 0), f"4 {COUNTED}", id="other_layouts"),
    ],
)
def test_shards_that_the_plan_does_not_have(
    tmp_path: Path, shards: list[WrittenShard], counts: tuple[int, ...], sentence: str
):
    with pytest.raises(BuildError, match=sentence):
        publish(tmp_path, shards, counts=counts)
    assert not (tmp_path / "out" / COMPLETED).exists()
