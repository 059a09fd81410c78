"""The plan's batches as positions of records, for PyTorch, JAX and Grain: imports no TensorFlow."""

import operator
import sys
import warnings
from collections.abc import Mapping
from typing import Self, SupportsIndex

import numpy as np

from pipeline.config import Balance, InputConfig
from pipeline.option_checks import as_integer, check_integer, check_step, check_type
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

    `sampler[i]` is the batch of step `start_step` + i. With `steps`, the sequence has so many
    batches; without, it never ends and has no length. The step is all the state there is: to go on
    after 700 steps, make a sampler with start_step=700.

    A training loop iterates over the sampler once per epoch. Each iteration yields the next `steps`
    batches, or those of `set_epoch`: iterations of 10 batches take steps 0 to 9, 10 to 19, ….
    Without `steps`, an iteration continues after the last batch that was drawn.

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
          steps: number of batches of an iteration, such as `steps_per_epoch`; None for no end.

        Raises:
          ValueError: an argument does not fit the dataset; the message says what is allowed.
        """
        check_type("records", records, Records, example="Records('data/receipts', 'train')")
        check_integer("global_batch_size", global_batch_size, example=256)
        check_integer("world_size", world_size, example=8)
        check_integer("rank", rank, example=0, minimum=0)
        start_step = as_integer("start_step", start_step, example=0)
        check_step("start_step", start_step)
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
        self._next_start = start_step  # first step of the next iteration
        self._last_start: int | None = None  # first step of the last one
        self._has_epochs = False  # whether set_epoch was called
        self._planned: tuple[range, list[list[int]]] = range(0), []

    @property
    def steps_per_epoch(self) -> int:
        return self._plan.steps_per_epoch

    @property
    def batch_size(self) -> int:
        """Records of a batch, for Accelerate, which divides batches among its processes.

        Raises:
          ValueError: `world_size` is above 1: another division would leave out batches.
        """
        if self._world_size > 1:
            raise ValueError(
                f"this BatchSampler has divided the batches among world_size={self._world_size} "
                "ranks, and a second division would drop batches: pass world_size=1 where "
                "Accelerate prepares the DataLoader, and use_distributed_sampler=False to "
                "Lightning's Trainer"
            )
        return self._plan.batch_units

    @property
    def sampler(self) -> Self:
        """Sampler that knows the epoch, on which Lightning and Accelerate call `set_epoch`."""
        return self

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
        return self._batch(self._start_step + number)

    def __iter__(self) -> "_Iteration":
        return _Iteration(self)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the batches of the next iteration: from step `start_step` + epoch · `steps` on.

        Raises:
          ValueError: the epoch is negative, or above 0 without `steps`.
        """
        epoch = as_integer("epoch", epoch, example=0)
        check_integer("epoch", epoch, example=0, minimum=0)
        if self._steps is None:
            if epoch:
                raise ValueError(
                    f"set_epoch({epoch}) needs the length of an epoch: pass steps to BatchSampler, "
                    f"such as steps={self.steps_per_epoch} for every record once"
                )
            return
        start = self._start_step + epoch * self._steps
        drawn = self._last_start
        if not self._has_epochs and drawn is not None and not start <= drawn < start + self._steps:
            # Lightning's first iterator after a restart, whose workers have read ahead by now.
            warnings.warn(
                f"set_epoch({epoch}) comes after batches of another epoch were drawn, which may "
                "be used in its place: call it before the DataLoader is iterated, in Lightning in "
                "train_dataloader with self.trainer.current_epoch",
                RuntimeWarning,
                stacklevel=2,
            )
        self._has_epochs = True
        self._next_start = start

    def _next_steps(self) -> range:
        """Returns the steps of the next iteration."""
        length = sys.maxsize if self._steps is None else self._steps
        return range(self._next_start, self._next_start + length)

    def _begin(self, steps: range) -> None:
        """Lets the iteration after this one continue behind its steps."""
        self._next_start = steps.stop
        if not steps:
            return
        if steps.start == self._last_start:
            warnings.warn(
                f"the batches from step {steps.start} on are drawn a second time: call set_epoch "
                "with the number of the epoch before each iteration",
                RuntimeWarning,
                stacklevel=3,
            )
        self._last_start = steps.start

    def _draw(self, step: int) -> list[int]:
        if self._steps is None:
            self._next_start = step + 1
        return self._batch(step)

    def _batch(self, step: int) -> list[int]:
        steps, batches = self._planned  # both at once: another thread may plan others meanwhile
        if step not in steps:
            steps, batches = self._planned = self._plan_around(step)
        return batches[step - steps.start]

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


class _Iteration:
    """Yields the batches of one iteration over a sampler.

    It begins with its first batch: a DataLoader with workers makes two iterators at its start, and
    draws from the second one alone. torchdata's StatefulDataLoader saves the state.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        self._sampler = sampler
        self._steps: range | None = None  # to come; None before the first batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[int]:
        if self._steps is None:
            self._steps = self._sampler._next_steps()
            self._sampler._begin(self._steps)
        if not self._steps:
            raise StopIteration
        step, self._steps = self._steps[0], self._steps[1:]
        return self._sampler._draw(step)

    def state_dict(self) -> dict[str, int]:
        """Returns the step of the next batch, and the one at which the iteration ends."""
        steps = self._sampler._next_steps() if self._steps is None else self._steps
        return {"step": steps.start, "stop": steps.stop}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues the iteration of a state."""
        self._steps = range(state["step"], state["stop"])
        self._sampler._begin(self._steps)
