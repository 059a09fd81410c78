"""Tells what a training run will read: `python -m pipeline.explain DATA_DIR`."""

import os
from collections.abc import Iterator, Sequence

from schemas.program import begin_program, run_program

if __name__ == "__main__":
    begin_program()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np

from pipeline.arguments import BALANCE, BUCKETS, add_dataset
from pipeline.config import InputConfig, Reading
from pipeline.records.bucket_sizes import count_ratios, filled_share
from pipeline.records.bucket_table import BucketTable, sizes_of
from pipeline.records.info import DatasetInfo, load_info
from pipeline.records.table import (
    RecordTable,
    check_batch_size,
    load_record_table,
    make_plan,
    read_index,
)
from pipeline.sampling.phases import FOREVER, Phase
from pipeline.sampling.plan import SLOT_PARTS, BatchPlan
from schemas.command_line import CommandParser, Flag, Options

_SHOWN = 4  # of the most common strata, and of the least common
_ROWS_COUNTED = 1 << 18


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = CommandParser(
        "pipeline.explain",
        "[DATA_DIR]",
        "Tells what a training run will read: steps, records that come several times or not at "
        "all, and how evenly each layout is spread.",
    )
    plan = Options(
        explain_plan,
        split=Flag(metavar="SPLIT"),
        global_batch_size=Flag(metavar="RECORDS"),
    )
    reading = Options(
        Reading,
        block_length=Flag(
            metavar="RECORDS",
            help="neighboring records that are read, and dealt to batches, together; above 1, "
            "shares of layouts hold on average only, and --balance-alpha must be 1",
        ),
    )
    inputs = Options(
        InputConfig,
        height=Flag(metavar="PIXELS", help="height of the images, for the sizes of buckets"),
        width=Flag(metavar="PIXELS", help="width of the images, for the sizes of buckets"),
        buckets=BUCKETS,
    )
    add_dataset(parser)
    plan.add_to(parser, "split", "global_batch_size", "replicas", "workers")
    reading.add_to(parser, "block_length")
    inputs.add_to(parser, "buckets", "height", "width")
    BALANCE.add_to(parser.add_argument_group("balance"))
    args = parser.parse(argv)
    try:
        config = inputs.make(args, balance=BALANCE.make(args), reading=reading.make(args))
        text = plan.make(args, config=config)
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    print(text, end="")
    return 0


def explain_plan(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    version: int | None = None,
    split: str = "train",
    global_batch_size: int = 256,
    config: InputConfig | None = None,
    seed: int = 0,
    replicas: int = 1,
    workers: int = 1,
) -> str:
    """Describes what each worker reads in an epoch, and how often records come.

    Args:
      data_dir: dataset directory; None for the one that TILLROLL_DATA_DIR names.
      version: version of the dataset; None for the newest.
      split: split to read.
      global_batch_size: records of a step, over all replicas.
      config: its balance, its reading and its buckets count.
      seed: seeds the order of the records.
      replicas: replicas in sync.
      workers: workers that share the replicas evenly.

    Raises:
      ValueError: an argument does not fit the dataset; the sentence says what does.
    """
    info = load_info(data_dir, version=version)
    config = config or InputConfig()
    for name, value in (("replicas", replicas), ("workers", workers)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    check_batch_size(global_batch_size, replicas, config.reading.block_length)
    if replicas % workers:
        raise ValueError(
            f"{replicas} replicas can't be shared evenly by {workers} workers: choose a multiple"
        )
    table = load_record_table(info, split, config)
    plan = make_plan(info, split, config, table, batch_size=global_batch_size, seed=seed)
    steps = plan.steps_per_epoch
    lines = [
        f"split {split} of {info.data_dir}, version {info.version}: {len(table):,} records",
        f"an epoch is {_counted(steps, 'step')} of {_counted(global_batch_size, 'record')}",
        f"  workers: {workers}, each makes {_counted(steps, 'batch', 'batches')} of "
        f"{_counted(global_batch_size // workers, 'record')}",
        f"  replicas: {replicas}, each gets {_counted(global_batch_size // replicas, 'record')} a "
        "step",
    ]
    for phase in plan.phases:
        if len(plan.phases) > 1:
            lines.append(_title(phase))
        if config.buckets is None:
            lines += _repeats(phase.plan, table)
        else:
            lines += _buckets(info, split, config, batch_size=global_batch_size, seed=seed)
        lines += _size(phase.plan, table, info, split, config, workers)
        if table.block_length == 1:
            lines += _strata(phase.plan, table, info, config.balance.by)
            lines += _fairness(phase.plan, replicas) if config.buckets is None else ()
    return "".join(f"{line}\n" for line in lines)


def _title(phase: Phase) -> str:
    steps = phase.steps
    until = "on" if steps.stop == FOREVER else f"to step {steps.stop - 1:,}"
    return f"from step {steps.start:,} {until}, with alpha {phase.plan.alpha:g}"


def _counted(number: int, one: str, several: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def _repeats(plan: BatchPlan, table: RecordTable) -> Iterator[str]:
    """Counts the records that come once, twice, … in the first epoch."""
    epoch = plan.epoch(np.int64(0))
    counts = plan.counts[epoch.strata]
    # 7 slots for 3 records are 2 times each, and one record comes once more.
    times, more = np.divmod(np.diff(epoch.slot_ends, prepend=0), counts)
    records = np.zeros(int(times.max()) + 2, np.int64)
    np.add.at(records, times, counts - more)
    np.add.at(records, times + 1, more)
    records *= table.block_length
    records[0] += len(table) - records.sum()  # the remainders of shards
    for number, count in enumerate(records.tolist()):
        if not count:
            continue
        records_come = "record comes" if count == 1 else "records come"
        if number == 0:
            skipped = "record is skipped" if count == 1 else "records are skipped"
            text = f"{skipped} in this epoch (others are skipped in the next)"
        else:
            text = f"{records_come} once" if number == 1 else f"{records_come} {number} times"
        yield f"  {count:>12,} {text}"


def _buckets(
    info: DatasetInfo, split: str, config: InputConfig, *, batch_size: int, seed: int
) -> Iterator[str]:
    """Lists the sizes of images, their records and steps, and how much of an image is padding."""
    buckets = BucketTable.load(info, split, config)
    plan = buckets.make_plan(info, split, config, batch_size=batch_size, seed=seed)
    ratios = count_ratios(info)
    filled = filled_share(ratios, sizes_of(info, config))
    single = filled_share(ratios, [(config.height, config.width)])
    yield (
        f"  images fill {filled:.0%} of their size on average, and would fill {single:.0%} of "
        f"{config.height} × {config.width}"
    )
    yield f"  {'records':>9} {'per epoch':>11}  height × width"
    steps = plan.allocation / SLOT_PARTS
    for (height, width), counts, share in zip(buckets.sizes, buckets.counts, steps, strict=True):
        yield f"  {counts.sum():>9,} {share:>5,.1f} steps  {height} × {width}"


def _size(
    plan: BatchPlan,
    table: RecordTable,
    info: DatasetInfo,
    split: str,
    config: InputConfig,
    workers: int,
) -> Iterator[str]:
    category = f"category/{config.balance.by}"
    _, columns = read_index(info, split, {"length": np.int32, category: np.int32})
    sizes = np.bincount(columns[category], columns["length"])
    sizes.resize(len(info.vocabulary(config.balance.by)))
    if table.block_length == 1:
        # The mean size of a stratum's records times its slots.
        size_bytes = float((sizes[table.categories] / plan.counts) @ plan.allocation) / SLOT_PARTS
    else:
        size_bytes = sizes.sum() * plan.slots * table.block_length / len(table)
    yield (
        f"  {size_bytes / 1e6:,.1f} MB are read per epoch, {size_bytes / workers / 1e6:,.1f} MB by "
        "each worker"
    )


def _strata(plan: BatchPlan, table: RecordTable, info: DatasetInfo, by: str) -> Iterator[str]:
    """Lists the most and the least common strata: their records, slots and weights."""
    names = info.vocabulary(by)
    order = np.lexsort((table.categories, -plan.counts))
    slots = plan.allocation / SLOT_PARTS
    titles = f"{'records':>9} {'per epoch':>11} {'per record':>10} {'per batch':>9} {'weight':>7}"
    yield f"  {titles}  {by}"
    shown = order.tolist()
    if len(shown) > 2 * _SHOWN:
        shown = [*shown[:_SHOWN], None, *shown[-_SHOWN:]]
    for at in shown:
        if at is None:
            yield f"  {'...':>9}  {len(order) - 2 * _SHOWN:,} more"
            continue
        yield (
            f"  {plan.counts[at]:>9,} {slots[at]:>11,.1f} {slots[at] / plan.counts[at]:>10.2f} "
            f"{slots[at] / plan.steps_per_epoch:>9.3f} {plan.weights[at]:>7.2f}  "
            f"{names[table.categories[at]]}"
        )


def _fairness(plan: BatchPlan, replicas: int) -> Iterator[str]:
    """Counts how far the first batches, and replicas' parts of them, are off the fair shares."""
    steps = min(plan.steps_per_epoch, max(1, _ROWS_COUNTED // plan.batch_units))
    step, row = np.indices((steps, plan.batch_units)).reshape(2, -1)
    epoch = plan.epoch(np.int64(0))
    share = np.zeros(len(plan.counts))
    share[epoch.strata] = np.diff(epoch.slot_ends, prepend=0) / plan.steps_per_epoch
    stratum = plan.rows(epoch, step, row).stratum.reshape(steps, plan.batch_units)
    batch = part = 0.0
    for rows in stratum:
        in_batch = np.bincount(rows, minlength=len(share))
        batch = max(batch, np.abs(in_batch - share).max())
        for replica in range(replicas):
            in_part = np.bincount(rows[replica::replicas], minlength=len(share))
            part = max(part, np.abs(in_part - in_batch / replicas).max())
    yield (
        f"  fairness: in {_counted(steps, 'step')} no batch is more than {batch:.3f} records off a "
        f"layout's fair share, and no replica's part of a batch more than {part:.3f}"
    )


if __name__ == "__main__":
    run_program(main)
