"""The plan: which records form each global batch, as a pure function of the step.

The plan deals units (records, or blocks of them) instead of shuffling them. An epoch gives each
stratum (layout) its slots, lines the slots up stratum by stratum, and puts slot i into column
i mod K of K steps. A step takes one column. So a batch holds the floor or the ceiling of each
stratum's fair share, and so does a replica's part of it, which takes every R-th row.

An example: 3 steps of 4 rows, 7 slots for stratum A and 5 for B. Slot i is in column i mod 3 and
row i // 3. Of A each batch has 2 or 3 (the fair share is 7/3), of B 1 or 2 (5/3):

             column 0   column 1   column 2
    row 0    slot 0 A   slot 1 A   slot 2 A
    row 1    slot 3 A   slot 4 A   slot 5 A
    row 2    slot 6 A   slot 7 B   slot 8 B
    row 3    slot 9 B   slot 10 B  slot 11 B

Steps visit the columns at a stride from a first column that changes with the epoch. With first
column 1 and stride 2, step 0 takes column 1, step 1 column 0, and step 2 column 2. The slots of a
stratum are numbered in the order in which steps take them. These numbers are its draws; of A:

    step                  0      1        2
    column                1      0        2
    slots of A            1 4    0 3 6    2 5
    draws of A            0 1    2 3 4    5 6

A random order of the stratum's units, new in each epoch, says which unit comes at each draw. With
more slots than units the units come again, and repeats of a unit lie as many draws apart as the
stratum has units.

None of this needs an array of an epoch's length: the slot in a row of a batch, its draw, and the
unit at that draw are each computed on their own. So a step costs the same at any point of a
training run of any length, and there is nothing to save or to prepare.

All of it runs in NumPy and in TensorFlow: integers, operators and the functions of `Arrays`.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.sampling.integer_math import NUMPY, ODD, Arrays, mix, permute, sum_of_floors

IntArray = npt.NDArray[np.int64]

# Allocations count in this fraction of a slot, as integers, so that sums are exact everywhere.
SLOT_PARTS = 1 << 20
_SLOT_BITS = 20
GOLDEN = (math.sqrt(5) - 1) / 2
_EPOCH_SHIFT = int(GOLDEN * SLOT_PARTS)


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """Values that all steps of one epoch share; arrays of shape [strata].

    Attributes:
      number: the epoch, 0 and up.
      key: 32 bits that seed its order.
      strata: the strata in the order in which their slots are lined up.
      slot_ends: the slot behind the last one of each of `strata`.
      first_units: the unit of each stratum at which the epoch starts to deal; the one behind the
        last unit that the epoch before dealt.
    """

    number: Any
    key: Any
    strata: Any
    slot_ends: Any
    first_units: Any


@dataclass(frozen=True, kw_only=True)
class BatchUnits:
    """The units in rows of global batches; arrays of shape [n].

    Attributes:
      unit: the number of the unit; units are numbered stratum by stratum.
      stratum: the stratum of the unit.
    """

    unit: Any
    stratum: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchPlan:
    """The plan of a training run.

    Attributes:
      counts: int64 [strata], units of each stratum, none of them 0.
      batch_units: units of a global batch.
      seed: 32 bits, see `plan_seed`.
      alpha: a stratum of n units gets slots in proportion to n ** alpha. 1 keeps the natural
        shares, 0 gives every stratum the same.
      repeat_cap: highest number of slots a unit gets in an epoch, on average over its stratum. It
        binds unless even that fills no batch.
      shares: float64 [strata], to which the slots of the strata are in proportion, whatever `alpha`
        and `repeat_cap` say; None where they follow from those.
    """

    counts: IntArray
    batch_units: int
    seed: int = 0
    alpha: float = 1.0
    repeat_cap: float = 8.0
    shares: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if not len(self.counts) or self.counts.min() < 1:
            raise ValueError(f"every stratum needs a record, got counts {self.counts}")
        if self.batch_units < 1:
            raise ValueError(f"a batch must hold at least 1 record, got {self.batch_units}")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha must be 0 (uniform) to 1 (natural), got {self.alpha}")
        if not self.repeat_cap >= 1:
            raise ValueError(f"repeat_cap must be at least 1, got {self.repeat_cap}")

    @property
    def units(self) -> int:
        """Number of units."""
        return int(self.counts.sum())

    @property
    def steps_per_epoch(self) -> int:
        """Global batches in an epoch: full ones, at least 1."""
        return max(1, self.units // self.batch_units)

    @property
    def slots(self) -> int:
        """Slots of an epoch, one for each row of each batch."""
        return self.steps_per_epoch * self.batch_units

    @cached_property
    def allocation(self) -> IntArray:
        """Slots of each stratum in an epoch, on average over epochs: int64 [strata], in 2**-20."""
        if self.shares is not None:
            exact = self.shares * (self.slots / self.shares.sum())
        else:
            # Powers are rounded: processors differ in their last bit, and workers must agree.
            wanted = np.rint(self.counts.astype(float) ** self.alpha * SLOT_PARTS)
            # A lower cap could not fill the batch: for 3 units in a batch of 12 it is 4. It may be
            # infinite.
            cap = min(max(self.repeat_cap, self.slots / self.units), self.slots)
            exact = _allocate(wanted, float(cap) * self.counts, self.slots)
        # Rounding the running sums keeps the total.
        ends = np.round(np.cumsum(exact) * SLOT_PARTS).astype(np.int64)
        ends[-1] = self.slots * SLOT_PARTS
        return np.diff(ends, prepend=0)

    @cached_property
    def weights(self) -> npt.NDArray[np.float32]:
        """Importance weight of each stratum's examples: float32 [strata], 1 on average of slots.

        Weighted sums over batches estimate sums over the natural mixture.
        """
        natural = self.counts * (self.slots / self.units * SLOT_PARTS)
        return (natural / self.allocation).astype(np.float32)

    @cached_property
    def stride(self) -> int:
        """Columns from a step's column to that of the next step, see `golden_stride`."""
        return golden_stride(self.steps_per_epoch)

    @cached_property
    def first_units(self) -> IntArray:
        """Number of each stratum's first unit, int64 [strata]."""
        return np.cumsum(self.counts) - self.counts

    def epoch(self, number: Any, xp: Arrays = NUMPY) -> Epoch:
        """Computes what the steps of an epoch share; `number` is an int64 scalar."""
        key = mix(mix(number, xp) + self.seed, xp)
        stratum = np.arange(len(self.counts), dtype=np.int64)
        # Strata have another order in every epoch, so that a rare one meets all replicas and all
        # others. Hashes may be equal, so the number of the stratum follows in the bits below.
        # Hash and number have 32 and 31 bits: together they are still a positive int64.
        hashed = mix(stratum * ODD % (1 << 32) + key, xp)
        strata = xp.argsort(hashed * (1 << 31) + stratum)
        ends, ends_before = rounded_ends(self.allocation, number, xp)
        slots, slots_before = (each[1:] - each[:-1] for each in (ends, ends_before))
        # Slots of all epochs before, modulo the units, are where the last epoch stopped: after 7 of
        # them, 3 units have come twice, and the first one three times.
        return Epoch(
            number=number,
            key=key,
            strata=strata,
            slot_ends=xp.cumsum(xp.take(slots, strata)),
            first_units=slots_before % self.counts,
        )

    def rows(self, epoch: Epoch, step: Any, row: Any, xp: Arrays = NUMPY) -> BatchUnits:
        """Finds the units in rows of global batches.

        Args:
          epoch: of `BatchPlan.epoch`.
          step: int64 [n], step within the epoch.
          row: int64 [n], row of the global batch.
          xp: array library.
        """
        steps = self.steps_per_epoch
        first_column = epoch.key % steps
        column = (first_column + self.stride * step) % steps

        # The stratum whose slots hold this one: of slots that end at 7 and 12 (A and B above),
        # slot 6 is in the first and slot 7 in the second. Strata without slots end where the one
        # before ends, and are passed over.
        position = xp.searchsorted(epoch.slot_ends, row * steps + column)
        stratum = xp.take(epoch.strata, position)
        # No stratum ends before the first one, and TensorFlow takes no position -1.
        previous = xp.take(epoch.slot_ends, xp.where(position > 0, position - 1, 0))
        first_slot = xp.where(position > 0, previous, 0)
        slots = xp.take(epoch.slot_ends, position) - first_slot

        draw = draw_of_slot(
            step,
            row,
            first_slot=first_slot,
            slots=slots,
            first_column=first_column,
            stride=self.stride,
            steps=steps,
            xp=xp,
        )

        count = xp.take(self.counts, stratum)
        key = mix(stratum * ODD % (1 << 32) + epoch.key, xp)
        unit = _unit_at_draw(draw, slots, count, key, xp)
        # An epoch deals on where the one before has stopped.
        unit = (unit + xp.take(epoch.first_units, stratum)) % count
        return BatchUnits(unit=xp.take(self.first_units, stratum) + unit, stratum=stratum)

    def batch(self, step: int) -> BatchUnits:
        """Finds the units of a step, counted over all epochs; arrays of shape [batch_units]."""
        number, step_in_epoch = divmod(step, self.steps_per_epoch)
        row = np.arange(self.batch_units)
        return self.rows(self.epoch(np.int64(number)), np.full_like(row, step_in_epoch), row)


def plan_seed(*identity: str | int) -> int:
    """Makes 32 bits of what a plan belongs to."""
    text = "\0".join(str(each) for each in identity)
    return int.from_bytes(sha256(text.encode()).digest()[:4], "little")


def example_seeds(seed: int, step: Any, row: Any, xp: Arrays = NUMPY) -> Any:
    """Makes a seed below 2**32 for each example, of its step and row.

    Args:
      seed: `BatchPlan.seed`.
      step: int64, global step over all epochs.
      row: int64 [n], row of the global batch.
      xp: array library.
    """
    # The order of the records takes `seed` itself, that of a replica's rows seed ^ 2: they share no
    # random numbers.
    return mix(mix(mix(step, xp) + (seed ^ 1), xp) + row * ODD, xp)


def golden_stride(steps: int) -> int:
    """Chooses the columns from one visit to the next of a walk around `steps` columns.

    The stride has no factor in common with the number of columns, so that every column is visited,
    and it is near the golden section of it, which spreads neighboring columns over the walk.
    """
    return next(
        stride
        for stride in range(max(1, round(steps * GOLDEN)), 2 * steps + 1)
        if math.gcd(stride, steps) == 1
    )


def rounded_ends(allocation: IntArray, number: Any, xp: Arrays = NUMPY) -> tuple[Any, Any]:
    """Rounds the running sums of an allocation to whole slots, otherwise in each epoch.

    The running sum, moved on by 0.618 of a slot in each epoch, is rounded: a stratum gets the floor
    or ceiling of its allocation, and the two evenly over the epochs. With 2.5 slots for each of two
    strata, sums 0 2.5 5: epoch 0 gives 2 and 3 slots, epoch 1 (sums 0.618 3.118 5.618) gives 3 and
    2.

    Args:
      allocation: int64 [strata], slots of each stratum in an epoch, in 2**-20.
      number: the epoch, int64 [] or [n, 1].
      xp: array library.

    Returns:
      The rounded sums of the epoch and those of all epochs before, added up; int64 [strata + 1] or
      [n, strata + 1]. A stratum's slots are the difference of two neighbors.
    """
    sums = np.concatenate([[0], np.cumsum(allocation)])
    ends = xp.shift_right(sums + number * _EPOCH_SHIFT, _SLOT_BITS)
    return ends, sum_of_floors(number, _EPOCH_SHIFT, sums, SLOT_PARTS, xp)


def draw_of_slot(
    step: Any,
    row: Any,
    *,
    first_slot: Any,
    slots: Any,
    first_column: Any,
    stride: int,
    steps: int,
    xp: Arrays = NUMPY,
) -> Any:
    """Counts the slots of a stratum that come before one of its slots: the number of its draw.

    In the example above, slot 6 of stratum A is in row 2 of column 0, which step 1 takes. Step 0
    took column 1 with two slots of A, and rows 0 and 1 of column 0 hold two more: draw 4.

    Args:
      step: int64 [n], step within the epoch, in which the slot is.
      row: int64 [n], its row of the batch.
      first_slot: int64 [n], first slot of the stratum.
      slots: int64 [n], number of slots of the stratum.
      first_column: column that step 0 takes.
      stride: columns from a step's column to that of the next step.
      steps: steps of the epoch, which is the number of columns.
      xp: array library.
    """
    # Each column has slots // steps of the stratum. The slots % steps columns from that of the
    # first slot on, around the end, have one more.
    start, bound = first_column - first_slot, slots % steps
    with_one_more = visits_below(step, stride, start, bound, steps, xp)
    in_earlier_steps = slots // steps * step + with_one_more
    column = (first_column + stride * step) % steps
    # The first row of the column with a slot of the stratum, (first_slot - column) / steps rounded
    # up. Slot 7 is the first of B: 7/3 makes it row 3 of column 0, 6/3 row 2 of column 1.
    first_row = (first_slot - column + steps - 1) // steps
    return in_earlier_steps + row - first_row


def visits_below(
    count: Any, stride: int, start: Any, bound: Any, columns: int, xp: Arrays = NUMPY
) -> Any:
    """Counts how many of the first `count` columns of a walk around a circle are below `bound`.

    The walk visits (start + stride * i) % columns for i = 0, 1, 2, … It adds up the indicator
    [x % columns < bound] = 1 + x // columns - (x + columns - bound) // columns. An example with
    7 columns, stride 3, start 2: the columns are 2 5 1 4 0 3 6; of the first 4, two are below 3.

    Args:
      count: int64 [n].
      stride: columns from one visit to the next.
      start: int64 [n], first column; it may lie outside 0 … columns.
      bound: int64 [n], 0 to `columns`.
      columns: number of columns.
      xp: array library.
    """
    start = start % columns
    return (
        count
        + sum_of_floors(count, stride, start, columns, xp)
        - sum_of_floors(count, stride, start + columns - bound, columns, xp)
    )


def _unit_at_draw(draw: Any, slots: Any, count: Any, key: Any, xp: Arrays) -> Any:
    """Finds which of a stratum's `count` units comes at a draw, in a random order of them.

    Of the `slots` draws, each run of `count` holds every unit once. The slots % count units that
    come once more than the others have the lowest numbers and come first in every run: with 7
    slots for 3 units the runs are |0 . .|0 . .|0, in which 1 and 2 take the other positions.
    """
    extra = slots % count
    position = draw % count
    is_extra = position < extra
    size = xp.where(is_extra, extra, count - extra)
    begin = xp.where(is_extra, 0, extra)
    return begin + permute(position - begin, size, key, xp)


def _allocate(
    wanted: npt.NDArray[np.float64], limits: npt.NDArray[np.float64], total: int
) -> npt.NDArray[np.float64]:
    """Divides `total` in proportion to `wanted`, giving nobody more than its limit.

    With wanted 1 1 2 and limits 9 1 9, a total of 8 becomes 7/3 1 14/3: the second one's limit
    binds, and the others divide the other 7.
    """
    # Those that reach their limit come first; the others divide what is left. In the example the
    # order is 1 2 0. For each of them, `taken` (0 1 10) is what the limits before it take, `rest`
    # (4 3 1) what is wanted from it on, and `scale` (2 7/3 -2) the share of a wanted unit if it is
    # the first that its limit does not bind. That is the second here: 2 * 1 > 1, 7/3 * 2 <= 9.
    order = np.argsort(limits / wanted, kind="stable")
    taken = np.cumsum(limits[order]) - limits[order]
    rest = np.cumsum(wanted[order][::-1])[::-1]
    scale = (total - taken) / rest
    binds = scale * wanted[order] > limits[order]
    first_free = int(np.argmin(binds)) if not binds.all() else len(order)
    allocation = limits.copy()
    free = order[first_free:]
    if len(free):
        allocation[free] = scale[first_free] * wanted[free]
    return allocation
