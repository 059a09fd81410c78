"""The records of a split by bucket: for training by layout as well, for evaluation in their order.

`RecordTable` has the records of all buckets, as one reader reads them all.
"""

import dataclasses
from dataclasses import dataclass
from typing import Self

import numpy as np

from pipeline.config import InputConfig, Size
from pipeline.records.bucket_sizes import bucket_sizes, find_bucket
from pipeline.records.info import DatasetInfo
from pipeline.records.table import RecordTable, read_index
from pipeline.sampling.buckets import BucketPlan
from pipeline.sampling.plan import IntArray, plan_seed


@dataclass(frozen=True, kw_only=True, eq=False)
class BucketTable:
    """A record table whose strata are the layouts of the first bucket, of the second, and so on.

    Attributes:
      table: the record table; its `categories` are category values.
      sizes: (height, width) in pixels of each bucket that has records.
      counts: int64 [buckets, category values], records of each value in each bucket.
    """

    table: RecordTable
    sizes: tuple[Size, ...]
    counts: IntArray

    @classmethod
    def load(cls, info: DatasetInfo, split: str, config: InputConfig) -> Self:
        """Makes the table of a split by `InputConfig.buckets` and `InputConfig.balance`."""
        by = config.balance.by
        values, sizes = len(info.vocabulary(by)), sizes_of(info, config)
        names = {f"category/{by}": np.int32, "height": np.int32, "width": np.int32}
        files, columns = read_index(info, split, {"offset": np.int64, **names})
        # A record of value 3 in bucket 2 of a vocabulary of 10 has the code 23.
        codes = columns[f"category/{by}"]
        start = 0
        for end in files["shard_ends"]:  # whose arrays of int64 are small
            shard = slice(start, end)
            bucket = find_bucket(sizes, columns["height"][shard], columns["width"][shard])
            codes[shard] += (bucket * values).astype(np.int32)
            start = end
        table = RecordTable.by_code(files, columns["offset"], codes, values=len(sizes) * values)
        bucket, category = np.divmod(table.categories, values)
        used, row = np.unique(bucket, return_inverse=True)
        counts = np.zeros([len(used), values], np.int64)
        counts[row, category] = table.counts
        return cls(
            table=dataclasses.replace(table, categories=category),
            sizes=tuple(sizes[number] for number in used),
            counts=counts,
        )

    @property
    def categories(self) -> IntArray:
        """Category values that have records in any bucket, int64 [layouts]."""
        return np.flatnonzero(self.counts.any(axis=0))

    def of_bucket(self, bucket: int) -> RecordTable:
        """Returns the same table with the strata of one bucket only."""
        strata = np.count_nonzero(self.counts, axis=1)
        first = int(strata[:bucket].sum())
        own = slice(first, first + int(strata[bucket]))
        return dataclasses.replace(
            self.table,
            **{
                name: getattr(self.table, name)[own]
                for name in ("categories", "first_records", "counts", "remainder")
            },
        )

    def make_plan(
        self, info: DatasetInfo, split: str, config: InputConfig, *, batch_size: int, seed: int
    ) -> BucketPlan:
        """Makes the plan of a training run; `batch_size` is that of global batches."""
        return BucketPlan(
            counts=self.counts[:, self.categories],
            batch_units=batch_size,
            seed=plan_seed(info.digest, split, seed),
            alpha=config.balance.phases[0][0],  # the only one, as `InputConfig` makes sure
            repeat_cap=config.balance.repeat_cap,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class BucketOrder:
    """The records of a split in the order of an evaluation: by bucket, then shard by shard.

    Attributes:
      records: int64 [records], numbers in the table in shard order.
      sizes: (height, width) in pixels of each bucket that has records.
      counts: int64 [buckets], records of each bucket.
    """

    records: IntArray
    sizes: tuple[Size, ...]
    counts: IntArray

    @classmethod
    def load(cls, info: DatasetInfo, split: str, config: InputConfig) -> Self:
        """Sorts the records of a split."""
        sizes = sizes_of(info, config)
        _, columns = read_index(info, split, {"height": np.int32, "width": np.int32})
        bucket = find_bucket(sizes, columns["height"], columns["width"])
        used, counts = np.unique(bucket, return_counts=True)
        return cls(
            records=np.argsort(bucket, kind="stable"),
            sizes=tuple(sizes[number] for number in used),
            counts=counts,
        )

    def largest(self) -> tuple[IntArray, Size]:
        """Returns the numbers of the records of the bucket that has the most, and its size."""
        bucket = int(np.argmax(self.counts))
        end = int(self.counts[: bucket + 1].sum())
        return self.records[end - self.counts[bucket] : end], self.sizes[bucket]

    def steps(self, batch_size: int) -> IntArray:
        """Counts the batches that hold the records of each bucket once: int64 [buckets]."""
        return -(-self.counts // batch_size)


def sizes_of(info: DatasetInfo, config: InputConfig) -> tuple[Size, ...]:
    """Returns the sizes of the buckets that options ask for, see `bucket_sizes`.

    Raises:
      ValueError: the dataset stores pixels of one size.
    """
    if info.manifest.build_options.get("image", {}).get("encoding") == "raw":
        raise ValueError(
            f"{info.data_dir} stores pixels of one size, which buckets would only pad: leave "
            "buckets out, or build the dataset with --encoding jpeg"
        )
    assert config.buckets is not None
    return bucket_sizes(info, config.buckets, height=config.height, width=config.width)
