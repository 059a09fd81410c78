"""Which records form each global batch: a pure function of the step.

Cards (records, or runs of them) are dealt, not shuffled. An epoch gives each stratum (layout) its
places, lines the places up stratum by stratum, and deals place i to column i mod K of K steps;
every batch then holds floor or ceiling of each stratum's fair share, and so does every replica's
slice of a batch, which takes each R-th row. Nothing of this needs an array of an epoch's length:
which place a batch's row is, which of its stratum's places that is, and which record comes in that
place can each be computed for itself. So a step costs the same at any point of a training run of
any length, and there is nothing to save or to prepare.

All of it runs in NumPy and in TensorFlow: integers, operators and the functions of `Arrays`.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.sampling.integer_math import NUMPY, ODD, Arrays, mix, shuffled, sum_of_floors

IntArray = npt.NDArray[np.int64]

# Shares count in this fraction of a place, as integers, so that sums are exact everywhere.
SHARE = 1 << 20
GOLDEN = (math.sqrt(5) - 1) / 2
_TURN = int(GOLDEN * SHARE)


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What all steps of one epoch share; arrays of shape [strata].

    Attributes:
      number: the epoch, 0 and up.
      key: 32 bits that seed its order.
      strata: the strata in the order in which their places are lined up.
      ends: where the places of each of `strata` end.
      firsts: the card of each stratum that is the first to be dealt once more than others; the
        one after the last such card of the epoch before.
    """

    number: Any
    key: Any
    strata: Any
    ends: Any
    firsts: Any


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of global batches; arrays of shape [n].

    Attributes:
      card: which card, by its number in the order of the strata.
      stratum: its stratum.
    """

    card: Any
    stratum: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The plan of a training run.

    Attributes:
      counts: int64 [strata], cards of each stratum, none of them 0.
      batch_cards: cards of a global batch.
      seed: 32 bits, see `plan_seed`.
      balance: temperature: a stratum of n cards gets places in proportion to n ** balance. 1 keeps
        the natural shares, 0 gives every stratum the same.
      repeat_cap: most places of a card in an epoch, on average over its stratum. It binds unless
        even that fills no batch.
    """

    counts: IntArray
    batch_cards: int
    seed: int = 0
    balance: float = 1.0
    repeat_cap: float = 8.0

    def __post_init__(self) -> None:
        if not len(self.counts) or self.counts.min() < 1:
            raise ValueError(f"every stratum needs a record, got counts {self.counts}")
        if self.batch_cards < 1:
            raise ValueError(f"a batch must hold at least 1 record, got {self.batch_cards}")
        if not 0 <= self.balance <= 1:
            raise ValueError(f"balance must be 0 (uniform) to 1 (natural), got {self.balance}")
        if not self.repeat_cap >= 1:
            raise ValueError(f"repeat_cap must be at least 1, got {self.repeat_cap}")

    @property
    def cards(self) -> int:
        """Number of cards."""
        return int(self.counts.sum())

    @property
    def steps_per_epoch(self) -> int:
        """Global batches in an epoch: full ones, at least 1."""
        return max(1, self.cards // self.batch_cards)

    @property
    def places(self) -> int:
        """Cards dealt in an epoch; a card that is dealt twice counts twice."""
        return self.steps_per_epoch * self.batch_cards

    @cached_property
    def shares(self) -> IntArray:
        """Each stratum's places in an epoch, on average over epochs, in 2**-20 of a place."""
        # Powers are rounded: processors differ in their last bit, and workers must agree.
        wanted = np.rint(self.counts.astype(float) ** self.balance * SHARE)
        cap = min(max(self.repeat_cap, self.places / self.cards), self.places)  # it may be infinite
        most = float(cap) * self.counts
        shares = _fill(wanted, most, self.places)
        # Rounding the running sums keeps the total.
        ends = np.round(np.cumsum(shares) * SHARE).astype(np.int64)
        ends[-1] = self.places * SHARE
        return np.diff(ends, prepend=0)

    @cached_property
    def weights(self) -> npt.NDArray[np.float32]:
        """Importance weight of each stratum's examples: float32 [strata], 1 on average of places.

        It undoes the balance: weighted sums over batches estimate sums over the natural mixture.
        """
        return (self.counts * (self.places / self.cards * SHARE) / self.shares).astype(np.float32)

    @cached_property
    def stride(self) -> int:
        """By how much the column moves from a step to the next.

        It has no factor in common with the number of steps, and spreads neighbouring columns over
        the epoch.
        """
        steps = self.steps_per_epoch
        return next(
            each
            for each in range(max(1, round(steps * GOLDEN)), 2 * steps + 1)
            if math.gcd(each, steps) == 1
        )

    @cached_property
    def firsts(self) -> IntArray:
        """Number of each stratum's first card, int64 [strata]."""
        return np.cumsum(self.counts) - self.counts

    def epoch(self, number: Any, xp: Arrays = NUMPY) -> Epoch:
        """What the steps of an epoch share; `number` is an int64 scalar."""
        key = mix(mix(number, xp) + self.seed, xp)
        own = np.arange(len(self.counts), dtype=np.int64)
        # Strata have another order in every epoch, so that a rare one meets all replicas and all
        # others. Hashes may be equal, so the number of the stratum follows in the bits below.
        hashed = mix(own * ODD % (1 << 32) + key, xp)
        strata = xp.argsort(hashed * (1 << 31) + own)
        # The running sum of the shares, moved on by 0.618 of a place in each epoch, is rounded: a
        # stratum gets the floor or ceiling of its share, and the two evenly over the epochs.
        sums = np.concatenate([[0], np.cumsum(self.shares)])
        ends = xp.shift_right(sums + number * _TURN, 20)
        earlier = sum_of_floors(number, _TURN, sums, SHARE)
        dealt, before = (each[1:] - each[:-1] for each in (ends, earlier))
        return Epoch(
            number=number,
            key=key,
            strata=strata,
            ends=xp.cumsum(xp.take(dealt, strata)),
            firsts=before % self.counts,
        )

    def rows(self, epoch: Epoch, step: Any, row: Any, xp: Arrays = NUMPY) -> Rows:
        """The cards in rows of global batches.

        Args:
          epoch: of `Plan.epoch`.
          step: int64 [n], step within the epoch.
          row: int64 [n], row of the global batch.
          xp: array library.
        """
        steps = self.steps_per_epoch
        start_column = epoch.key % steps
        column = (self.stride * step + start_column) % steps
        line = xp.searchsorted(epoch.ends, row * steps + column)
        stratum = xp.take(epoch.strata, line)
        start = xp.where(line > 0, xp.take(epoch.ends, xp.where(line > 0, line - 1, 0)), 0)
        dealt = xp.take(epoch.ends, line) - start

        # How many places of the stratum earlier steps have had, and this step's earlier rows.
        spare = dealt % steps
        ahead = (start_column - start) % steps
        earlier = dealt // steps * step + sum_of_floors(step, self.stride, ahead, steps)
        earlier = earlier + step - sum_of_floors(step, self.stride, ahead + steps - spare, steps)
        place = earlier + row - (start - column + steps - 1) // steps

        count = xp.take(self.counts, stratum)
        card = _card_of_place(
            place, dealt, count, mix(stratum * ODD % (1 << 32) + epoch.key, xp), xp
        )
        # An epoch deals on where the one before has stopped.
        turned = (card + xp.take(epoch.firsts, stratum)) % count
        return Rows(card=xp.take(self.firsts, stratum) + turned, stratum=stratum)

    def batch(self, step: int) -> Rows:
        """The global batch of a step, counted over all epochs; arrays of shape [batch_cards]."""
        number, within = divmod(step, self.steps_per_epoch)
        row = np.arange(self.batch_cards)
        return self.rows(self.epoch(np.int64(number)), np.full_like(row, within), row)


def plan_seed(*identity: str | int) -> int:
    """32 bits that follow from what a plan belongs to."""
    text = "\0".join(str(each) for each in identity)
    return int.from_bytes(sha256(text.encode()).digest()[:4], "little")


def example_seeds(seed: int, step: Any, row: Any, xp: Arrays = NUMPY) -> Any:
    """A seed below 2**32 for each example, by its place.

    Args:
      seed: `Plan.seed`.
      step: int64, global step over all epochs.
      row: int64 [n], row of the global batch.
      xp: array library.
    """
    return mix(mix(mix(step, xp) + (seed ^ 1), xp) + row * ODD, xp)


def _card_of_place(place: Any, dealt: Any, count: Any, key: Any, xp: Arrays) -> Any:
    """Which of a stratum's cards comes in a place: a random order of them, again and again.

    Of the `dealt` places, each run of `count` holds every card once, so repeats of a card lie
    `count` places of its stratum apart. Cards that are dealt once more than others come first in
    every run.
    """
    more = dealt % count
    at = place % count
    is_more = at < more
    size = xp.where(is_more, more, count - more)
    begin = xp.where(is_more, 0, more)
    return begin + shuffled(at - begin, size, key, xp)


def _fill(
    wanted: npt.NDArray[np.float64], most: npt.NDArray[np.float64], total: int
) -> npt.NDArray[np.float64]:
    """Shares of `total` in proportion to `wanted`, none above its `most`."""
    order = np.argsort(most / wanted, kind="stable")
    # Those that reach their limit come first; the others share what is left.
    taken = np.cumsum(most[order]) - most[order]
    rest = np.cumsum(wanted[order][::-1])[::-1]
    scale = (total - taken) / rest
    binds = scale * wanted[order] > most[order]
    first_free = int(np.argmin(binds)) if not binds.all() else len(order)
    shares = most.copy()
    free = order[first_free:]
    if len(free):
        shares[free] = scale[first_free] * wanted[free]
    return shares
