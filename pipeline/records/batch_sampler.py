"""The plan's batches as positions of records, for PyTorch, JAX and Grain: imports no TensorFlow."""

import itertools
import operator
from collections.abc import Iterator
from typing import SupportsIndex

import numpy as np

from pipeline.config import Balance, InputConfig
from pipeline.option_checks import as_integer, check_integer, check_type
from pipeline.records.sequence import Records
from pipeline.records.table import RecordTable, check_batch_size, make_plan
from pipeline.sampling.batch_order import replica_rows

_ROWS_AT_ONCE = 8192  # for which the plan is computed


class BatchSampler:
    """Tells which records make up each batch of one rank: those of `make_dataset`, in its order.

    Images are the caller's, so there is nothing like `InputConfig.buckets`.

    A sequence of batches, each a list of positions in `Records`. Every global batch holds each
    layout within one record of its share, and so does the batch of a rank, of global_batch_size /
    world_size records. Equal arguments give equal global batches, whatever the number of ranks.

    `sampler[i]` is the batch of step `start_step` + i, and iterating yields one after the other.
    With `steps`, the sequence has so many batches; without, it never ends and has no length. The
    step is all the state there is: to go on after 700 steps, make a sampler with start_step=700.

    Attributes:
      steps_per_epoch: number of full global batches in an epoch, at least 1.
    """

    def __init__(
        self,
        records: Records,
        *,
        global_batch_size: int = 256,
        balance: Balance | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        start_step: int = 0,
        steps: int | None = None,
    ) -> None:
        """Makes the plan of a split.

        Args:
          records: the records whose positions are sampled.
          global_batch_size: records of a training step, over all ranks.
          balance: how often the records of each layout come; None for their natural shares.
          seed: seeds the order of the records.
          rank: number of this process, from 0.
          world_size: number of the processes that share a global batch.
          start_step: global step to begin with.
          steps: number of batches; None for no end.

        Raises:
          ValueError: an argument does not fit the dataset; the message says what is allowed.
        """
        check_integer("global_batch_size", global_batch_size, example=256)
        check_integer("world_size", world_size, example=8)
        check_integer("rank", rank, example=0, minimum=0)
        start_step = as_integer("start_step", start_step, example=0)
        check_integer("start_step", start_step, example=0, minimum=0)
        if steps is not None:
            check_integer("steps", steps, example=1000)
        if rank >= world_size:
            raise ValueError(
                f"rank must be 0 to {world_size - 1} with world_size {world_size}, got {rank}"
            )
        check_batch_size(global_batch_size, world_size)
        balance = Balance() if balance is None else balance
        check_type("balance", balance, Balance, example="Balance(alpha=0.3)")
        table = RecordTable.by_category(records.info, records.split, balance.by)
        self._plan = make_plan(
            records.info,
            records.split,
            InputConfig(balance=balance),
            table,
            batch_size=global_batch_size,
            seed=as_integer("seed", seed, example=0),
        )
        # The table has single records: a unit of the plan is one of them, `order` its position.
        assert table.order is not None
        self._positions = table.order
        self._rank, self._world_size = rank, world_size
        self._start_step, self._steps = start_step, steps
        self._planned: tuple[range, list[list[int]]] = range(0), []

    @property
    def steps_per_epoch(self) -> int:
        return self._plan.steps_per_epoch

    def __len__(self) -> int:
        if self._steps is None:
            raise TypeError("a BatchSampler without steps has no end: pass steps for a length")
        return self._steps

    def __getitem__(self, number: SupportsIndex) -> list[int]:
        """Returns the positions of a batch; `number` counts from `start_step`.

        Raises:
          IndexError: there is no such batch.
        """
        number = operator.index(number)
        if number < 0 or (self._steps is not None and number >= self._steps):
            last = "" if self._steps is None else f" to {self._steps - 1}"
            raise IndexError(f"there is no batch {number}: batches are numbered from 0{last}")
        step = self._start_step + number
        steps, batches = self._planned  # both at once: another thread may plan others meanwhile
        if step not in steps:
            steps, batches = self._planned = self._plan_around(step)
        return batches[step - steps.start]

    def __iter__(self) -> Iterator[list[int]]:
        numbers = itertools.count() if self._steps is None else range(self._steps)
        return map(self.__getitem__, numbers)

    def _plan_around(self, step: int) -> tuple[range, list[list[int]]]:
        """Plans the batches of a step and of its neighbors, as NumPy's calls cost more than rows.

        An epoch of 10 steps, 4 of them planned at once, is planned as 0 to 3, 4 to 7, 8 and 9. A
        second phase that begins at step 6 divides the 4 to 7 into 4 and 5, 6 and 7.
        """
        phase = self._plan.phase(step)
        plan, replica_size = phase.plan, self._plan.batch_units // self._world_size
        at_once = max(1, _ROWS_AT_ONCE // replica_size)
        number, step_in_epoch = divmod(step, plan.steps_per_epoch)
        epoch_start = number * plan.steps_per_epoch
        first = step_in_epoch // at_once * at_once
        stop = min(first + at_once, plan.steps_per_epoch, phase.steps.stop - epoch_start)
        first = max(first, phase.steps.start - epoch_start)
        in_epoch = np.arange(first, stop)
        row = replica_rows(
            epoch_start + in_epoch,
            np.int64(self._rank),
            replicas=self._world_size,
            batch_units=plan.batch_units,
            seed=plan.seed,
        )
        units = plan.rows(
            plan.epoch(np.int64(number)), np.repeat(in_epoch, replica_size), row.ravel()
        )
        batches = self._positions[units.unit].reshape(-1, replica_size).tolist()
        return range(epoch_start + first, epoch_start + first + len(batches)), batches
