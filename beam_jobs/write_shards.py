"""The end of a job that deals records: from the plan to the written shards."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, TaggedOutput

from beam_jobs.prepare.references import ORDERED_LOCATION
from beam_jobs.shard_plan import ShardKey, Starts, deal, every_shard
from beam_jobs.sharding.deal import Plan
from beam_jobs.sharding.histograms import Histogram, check_layouts
from beam_jobs.writing.shards import ShardWriter, Vocabularies, WrittenShard
from schemas.receipt import LAYOUT


def write_shards(
    references: beam.PCollection[tuple[int, str]],
    plan: beam.PCollection[Plan],
    starts: beam.PCollection[Starts],
    vocabularies: AsSingleton,
    writer: ShardWriter,
) -> tuple[beam.PCollection[WrittenShard], beam.PCollection]:
    """Deals the records of all buckets, and writes all shards.

    Args:
      references: (bucket, path of its References).
      plan: the plan.
      starts: where each bucket's starts lie.
      vocabularies: category name to its vocabulary.
      writer: writes one shard.

    Returns:
      The shards, and ((split, category), records of each value).
    """
    dealt = references | "Deal" >> beam.FlatMap(
        deal, plan=AsSingleton(plan), starts=AsSingleton(starts), vocabularies=vocabularies
    )  # (ShardKey, where its records of one bucket lie)
    empty = plan | "EveryShard" >> beam.FlatMap(every_shard)  # (ShardKey, bytes)
    written = (
        (dealt, empty)
        | beam.Flatten()
        | "ByShard" >> beam.GroupByKey()  # (ShardKey, Iterable[bytes])
        | "WriteShard"
        >> beam.FlatMap(
            _write_shard, writer=writer, plan=AsSingleton(plan), vocabularies=vocabularies
        ).with_outputs("codes", main="shards")
    )  # WrittenShard and, tagged, ((split, category), codes)
    return written["shards"], written["codes"] | "CountValues" >> beam.CombinePerKey(Histogram())


def _write_shard(
    shard: tuple[ShardKey, Iterable[bytes]],
    *,
    writer: ShardWriter,
    plan: Plan,
    vocabularies: Vocabularies,
) -> Iterator[Any]:
    """Yields the written shard and, tagged, ((split, category), codes) of its records.

    Raises:
      BuildError: the shard does not hold the layouts that the plan gives it.
    """
    (split, number), parts = shard
    written, index = writer.write(
        plan.split_names[split],
        number,
        np.frombuffer(b"".join(parts), ORDERED_LOCATION),
        vocabularies,
    )
    check_layouts(
        written.shard.name,
        index.categories[LAYOUT],
        expected=plan.histogram(split, number),
        layouts=vocabularies[LAYOUT].values,
    )
    yield written
    for name, codes in index.categories.items():
        yield TaggedOutput("codes", ((written.split, name), codes))
