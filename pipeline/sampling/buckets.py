"""The plan of batches that have one bucket each: the bucket of a step, and its records.

Images of a bucket have one size, and a batch has one shape, so every global batch is of one bucket.
Two levels make it a function of the step:

- The steps of an epoch are dealt to the buckets. A bucket of n of all N records gets n / N of them:
  the floor or the ceiling, and the two evenly over the epochs. A bucket of 5 records in batches of
  64 gets one step about every 13 epochs, and each of its records comes 12 or 13 times in that step.
- Each bucket has a `BatchPlan` of its own, whose strata are the layouts of its records. Its epoch
  is over when all of its records have come. The t-th step that the bucket gets is step t of it.

An example: 5 steps per epoch, of which bucket A gets 3.4, B 1.2 and C 0.4. Each bucket gets columns
that lie side by side, and steps visit the columns at a stride, so that the buckets take turns. In
an epoch that gives them 3, 1 and 1 steps, with first column 1 and stride 3:

    columns        0 A  1 A  2 A  3 B  4 C
    step           0    1    2    3    4
    column         1    4    2    0    3
    bucket         A    C    A    A    B

The steps that A had before step 3 are those of the epochs before, and two. Both numbers are sums of
floors, so no step needs those before it, and the step is all the state that there is.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.sampling.integer_math import NUMPY, Arrays, mix
from pipeline.sampling.plan import (
    SLOT_PARTS,
    BatchPlan,
    BatchUnits,
    IntArray,
    golden_stride,
    plan_seed,
    rounded_ends,
    visits_below,
)


@dataclass(frozen=True, kw_only=True)
class BucketStep:
    """The buckets of steps; arrays of shape [n].

    Attributes:
      bucket: the bucket of the step.
      step: number of the steps before that have the same bucket.
    """

    bucket: Any
    step: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class BucketPlan:
    """The plan of a training run with buckets.

    Attributes:
      counts: int64 [buckets, layouts], units of each layout in each bucket. Every bucket and every
        layout has one or more.
      batch_units: as in `BatchPlan`; and so are the others.
      seed: 32 bits.
      alpha: a layout of n units, in all buckets, gets slots in proportion to n ** alpha.
      repeat_cap: highest number of slots a unit gets in an epoch, on average over its layout.
    """

    counts: IntArray
    batch_units: int
    seed: int = 0
    alpha: float = 1.0
    repeat_cap: float = 8.0

    def __post_init__(self) -> None:
        if self.counts.ndim != 2 or not self.counts.size or not self.counts.any(axis=1).all():
            raise ValueError(f"every bucket needs a record, got counts {self.counts.tolist()}")

    @cached_property
    def layout_plan(self) -> BatchPlan:
        """The plan of the same records in one bucket: its allocation and weights hold here, too."""
        return BatchPlan(
            counts=self.counts.sum(axis=0),
            batch_units=self.batch_units,
            seed=self.seed,
            alpha=self.alpha,
            repeat_cap=self.repeat_cap,
        )

    @property
    def steps_per_epoch(self) -> int:
        """Global batches in an epoch, over all buckets: full ones, at least 1."""
        return self.layout_plan.steps_per_epoch

    @cached_property
    def _slots(self) -> npt.NDArray[np.float64]:
        """Slots of each layout in each bucket in an epoch: float64 [buckets, layouts].

        The slots of a layout are divided among the buckets in proportion to its units there.
        """
        layouts = self.layout_plan
        return self.counts * (layouts.allocation / SLOT_PARTS / layouts.counts)

    @cached_property
    def allocation(self) -> IntArray:
        """Steps of each bucket in an epoch, on average over epochs: int64 [buckets], in 2**-20."""
        total = self.steps_per_epoch * SLOT_PARTS
        exact = self._slots.sum(axis=1) * (SLOT_PARTS / self.batch_units)
        # A bucket that is rounded to nothing would never come.
        parts = np.maximum(np.rint(exact), 1).astype(np.int64)
        parts[np.argmax(parts)] += total - parts.sum()
        return parts

    @cached_property
    def plans(self) -> tuple[BatchPlan, ...]:
        """The plan of each bucket, whose strata are the layouts that have units in it."""
        return tuple(
            BatchPlan(
                counts=counts[counts > 0],
                batch_units=self.batch_units,
                seed=plan_seed(self.seed, "bucket", bucket),
                shares=slots[counts > 0],
            )
            for bucket, (counts, slots) in enumerate(zip(self.counts, self._slots, strict=True))
        )

    def steps_before(self, step: Any, xp: Arrays = NUMPY) -> Any:
        """Counts the steps of each bucket among the first steps of a run.

        Args:
          step: int64 [n], global step over all epochs.
          xp: array library.

        Returns:
          int64 [n, buckets], whose rows add up to `step`.
        """
        _, _, before = self._visits(step, xp)
        return before

    def of_steps(self, step: Any, xp: Arrays = NUMPY) -> BucketStep:
        """Finds the buckets of steps.

        Args:
          step: int64 [n], global step over all epochs.
          xp: array library.
        """
        from_first, slots, before = self._visits(step, xp)
        # The column of the step is in one bucket's columns. Ones and products pick that bucket.
        is_of = xp.where((from_first >= 0) & (from_first < slots), 1, 0)
        buckets = len(self.counts)
        return BucketStep(
            bucket=(is_of @ np.arange(buckets)[:, None])[:, 0],
            step=((is_of * before) @ np.ones([buckets, 1], np.int64))[:, 0],
        )

    def _visits(self, step: Any, xp: Arrays) -> tuple[Any, Any, Any]:
        """Finds the columns of steps, and counts visits.

        Returns:
          Columns from the first one of each bucket to that of the step, the columns of each bucket
          in the step's epoch, and the earlier steps of each bucket; int64 [n, buckets].
        """
        steps, stride = self.steps_per_epoch, golden_stride(self.steps_per_epoch)
        number, in_epoch = (each[:, None] for each in (step // steps, step % steps))
        ends, ends_before = rounded_ends(self.allocation, number, xp)
        slots = ends[:, 1:] - ends[:, :-1]
        first_slot = ends[:, :-1] - ends[:, :1]
        # The order of the units takes `seed` itself, other numbers seed ^ 1 and seed ^ 2.
        first_column = mix(mix(number, xp) + (self.seed ^ 3), xp) % steps
        earlier = visits_below(in_epoch, stride, first_column - first_slot, slots, steps, xp)
        column = (first_column + stride * in_epoch) % steps
        return column - first_slot, slots, ends_before[:, 1:] - ends_before[:, :-1] + earlier

    def batch(self, step: int) -> tuple[int, BatchUnits]:
        """Finds the bucket of a step, and its units as `BatchPlan.batch` of the bucket's plan."""
        found = self.of_steps(np.array([step]))
        bucket = int(found.bucket[0])
        return bucket, self.plans[bucket].batch(int(found.step[0]))
