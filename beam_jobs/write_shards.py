"""The end of a job that deals records: from the plan to the written shards."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, AsList, AsSingleton, TaggedOutput

from beam_jobs.find_layouts import Uncertain
from beam_jobs.prepare.references import ORDERED_LOCATION, hash_words
from beam_jobs.shard_plan import ShardKey, Starts, deal, every_shard
from beam_jobs.sharding.deal import Plan
from beam_jobs.sharding.histograms import Histogram, check_layouts
from beam_jobs.writing.shards import ShardWriter, Vocabularies
from schemas.index import RecordIndex
from schemas.least_certain import UncertainReceipt
from schemas.receipt import LAYOUT
from schemas.statistics import RecordSummary


@dataclass(frozen=True, kw_only=True)
class WrittenShards:
    """Collections that `write_shards` makes.

    Attributes:
      shards: WrittenShard.
      category_counts: ((split, category), records of each value).
      summaries: (split, RecordSummary).
      least_certain: UncertainReceipt; None where layouts are not found.
    """

    shards: beam.PCollection
    category_counts: beam.PCollection
    summaries: beam.PCollection
    least_certain: beam.PCollection | None = None

    def side_inputs(self) -> dict[str, beam.pvalue.AsSideInput]:
        """Arguments of the publisher, by name."""
        inputs: dict[str, beam.pvalue.AsSideInput] = {
            "shards": AsList(self.shards),
            "category_counts": AsDict(self.category_counts),
            "summaries": AsDict(self.summaries),
        }
        if self.least_certain is not None:
            inputs["least_certain"] = AsList(self.least_certain)
        return inputs


def write_shards(
    references: beam.PCollection[tuple[int, str]],
    plan: beam.PCollection[Plan],
    starts: beam.PCollection[Starts],
    vocabularies: AsSingleton,
    writer: ShardWriter,
    least_certain: AsSingleton | None = None,
) -> WrittenShards:
    """Deals the records of all buckets, and writes all shards.

    Args:
      references: (bucket, path of its References).
      plan: the plan.
      starts: where each bucket's starts lie.
      vocabularies: category name to its vocabulary.
      writer: writes one shard.
      least_certain: records that are to be named ([Uncertain]); None where layouts are not found.

    Returns:
      The shards, with what is counted of their records.
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
            _write_shard,
            writer=writer,
            plan=AsSingleton(plan),
            vocabularies=vocabularies,
            least_certain=() if least_certain is None else least_certain,
        ).with_outputs("codes", "summaries", "least_certain", main="shards")
    )
    return WrittenShards(
        shards=written["shards"],
        category_counts=written["codes"] | "CountValues" >> beam.CombinePerKey(Histogram()),
        # Not with the shards: the bins of 40,000 of them would be gigabytes on one worker.
        summaries=written["summaries"] | "SumUp" >> beam.CombinePerKey(RecordSummary.merged),
        least_certain=None if least_certain is None else written["least_certain"],
    )


def _write_shard(
    shard: tuple[ShardKey, Iterable[bytes]],
    *,
    writer: ShardWriter,
    plan: Plan,
    vocabularies: Vocabularies,
    least_certain: Sequence[Uncertain],
) -> Iterator[Any]:
    """Yields the written shard and, tagged, codes and statistics of its records.

    They are ((split, category), codes) and (split, RecordSummary). Tagged, too, are those of its
    records that are among the least certain (UncertainReceipt).

    Raises:
      BuildError: the shard does not hold the layouts that the plan gives it.
    """
    (split, number), parts = shard
    written, index, summary = writer.write(
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
    yield TaggedOutput("summaries", (written.split, summary))
    for name, codes in index.categories.items():
        yield TaggedOutput("codes", ((written.split, name), codes))
    for receipt in _named(least_certain, index, written.split, vocabularies, seed=writer.seed):
        yield TaggedOutput("least_certain", receipt)


def _named(
    least_certain: Sequence[Uncertain],
    index: RecordIndex,
    split: str,
    vocabularies: Vocabularies,
    *,
    seed: int,
) -> Iterator[UncertainReceipt]:
    """Yields those of the least certain records that lie in a shard, by their ids."""
    similarities = {key: similarity for similarity, key in least_certain}
    if not similarities:
        return
    layouts = vocabularies[LAYOUT].values
    for id_, code in zip(index.ids(), index.categories[LAYOUT].tolist(), strict=True):
        key = np.array(hash_words(id_, seed=seed), np.uint64).tobytes()
        if key in similarities:
            yield UncertainReceipt(
                id=id_, split=split, layout=layouts[code], similarity=similarities[key]
            )
