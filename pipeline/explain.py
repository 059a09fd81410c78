"""Tells what a training run will read: `python -m pipeline.explain DATA_DIR`."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np

from pipeline.config import Balance, InputConfig, Reading
from pipeline.records.info import DatasetInfo, add_data_dir, load_info
from pipeline.records.table import Deck, check_batch_size, make_deck, make_plan, read_index
from pipeline.sampling.plan import SHARE, Plan

_SHOWN = 4  # of the commonest, and of the rarest
_ROWS_COUNTED = 1 << 18


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.explain", description=__doc__)
    add_data_dir(parser)
    parser.add_argument("--split", default="train", help="(default: %(default)s)")
    parser.add_argument(
        "--global-batch-size", type=int, default=256, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--replicas", type=int, default=1, metavar="N", help="in sync (default: %(default)s)"
    )
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N", help="that share them (default: %(default)s)"
    )
    balance = Balance()
    parser.add_argument(
        "--balance",
        type=float,
        default=balance.temperature,
        metavar="T",
        help="temperature: 1 for natural shares to 0 for equal ones (default: %(default)g)",
    )
    parser.add_argument(
        "--repeat-cap",
        type=float,
        default=balance.repeat_cap,
        metavar="N",
        help="most times a record comes in an epoch (default: %(default)g)",
    )
    parser.add_argument(
        "--by", default=balance.by, metavar="LABEL", help="category (default: %(default)s)"
    )
    parser.add_argument(
        "--run-length", type=int, default=1, metavar="N", help="see Reading (default: %(default)s)"
    )
    known = parser.parse_args(argv)
    try:
        config = InputConfig(
            balance=Balance(temperature=known.balance, repeat_cap=known.repeat_cap, by=known.by),
            reading=Reading(run_length=known.run_length),
        )
        text = explain_plan(
            known.data_dir,
            split=known.split,
            global_batch_size=known.global_batch_size,
            config=config,
            replicas=known.replicas,
            workers=known.workers,
        )
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    print(text, end="")
    return 0


def explain_plan(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    split: str = "train",
    global_batch_size: int = 256,
    config: InputConfig | None = None,
    seed: int = 0,
    replicas: int = 1,
    workers: int = 1,
) -> str:
    """What each worker reads in an epoch, and what comes how often.

    Args:
      data_dir: dataset directory; None for the one that TILLROLL_DATA_DIR names.
      split: split to read.
      global_batch_size: records of a step, over all replicas.
      config: its balance and its reading count.
      seed: seeds the order of the records.
      replicas: replicas in sync.
      workers: workers that share them evenly.

    Raises:
      ValueError: an argument does not fit the dataset; the sentence says what does.
    """
    info = load_info(data_dir)
    config = config or InputConfig()
    for name, value in (("replicas", replicas), ("workers", workers)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    check_batch_size(global_batch_size, replicas, config.reading.run_length)
    if replicas % workers:
        raise ValueError(
            f"{replicas} replicas can't be shared evenly by {workers} workers: choose a multiple"
        )
    deck = make_deck(info, split, config)
    plan = make_plan(info, split, config, deck, batch_size=global_batch_size, seed=seed)
    each = global_batch_size // workers
    lines = [
        f"split {split} of {info.data_dir}: {len(deck):,} records",
        f"an epoch is {plan.steps_per_epoch:,} steps of {global_batch_size:,} records",
        f"  workers: {workers}, each makes {plan.steps_per_epoch:,} batches of {each:,} records",
        f"  replicas: {replicas}, each gets {global_batch_size // replicas:,} records a step",
        *_repeats(plan, deck),
        *_size(plan, deck, info, split, config, workers),
    ]
    if deck.run_length == 1:
        lines += [*_strata(plan, deck, info, config.balance.by), *_fairness(plan, replicas)]
    return "".join(f"{line}\n" for line in lines)


def _repeats(plan: Plan, deck: Deck) -> Iterator[str]:
    """How many records come how often in the first epoch."""
    epoch = plan.epoch(np.int64(0))
    counts = plan.counts[epoch.strata]
    times, more = np.divmod(np.diff(epoch.ends, prepend=0), counts)
    records = np.zeros(int(times.max()) + 2, np.int64)
    np.add.at(records, times, counts - more)
    np.add.at(records, times + 1, more)
    records *= deck.run_length
    records[0] += len(deck) - records.sum()  # what runs leave over
    for number, count in enumerate(records.tolist()):
        if count:
            text = "not at all in an epoch, others in the next" if not number else f"{number} times"
            yield f"  {count:>12,} records come {'once' if number == 1 else text}"


def _size(
    plan: Plan, deck: Deck, info: DatasetInfo, split: str, config: InputConfig, workers: int
) -> Iterator[str]:
    category = f"category/{config.balance.by}"
    _, columns = read_index(info, split, {"length": np.int32, category: np.int32})
    sizes = np.bincount(columns[category], columns["length"])
    sizes.resize(len(info.vocabulary(config.balance.by)))
    if deck.run_length == 1:
        size_bytes = float((sizes[deck.categories] / plan.counts) @ plan.shares) / SHARE
    else:
        size_bytes = sizes.sum() * plan.places * deck.run_length / len(deck)
    yield (
        f"  {size_bytes / 1e6:,.1f} MB read an epoch, {size_bytes / workers / 1e6:,.1f} MB by each "
        "worker"
    )


def _strata(plan: Plan, deck: Deck, info: DatasetInfo, by: str) -> Iterator[str]:
    """The commonest and the rarest, and what becomes of them."""
    names = info.vocabulary(by)
    order = np.lexsort((deck.categories, -plan.counts))
    places = plan.shares / SHARE
    yield f"  {'records':>9} {'an epoch':>11} {'a record':>9} {'a batch':>9} {'weight':>7}  {by}"
    shown = order.tolist()
    if len(shown) > 2 * _SHOWN:
        shown = [*shown[:_SHOWN], None, *shown[-_SHOWN:]]
    for at in shown:
        if at is None:
            yield f"  {'...':>9}  {len(order) - 2 * _SHOWN:,} more"
            continue
        yield (
            f"  {plan.counts[at]:>9,} {places[at]:>11,.1f} {places[at] / plan.counts[at]:>9.2f} "
            f"{places[at] / plan.steps_per_epoch:>9.3f} {plan.weights[at]:>7.2f}  "
            f"{names[deck.categories[at]]}"
        )


def _fairness(plan: Plan, replicas: int) -> Iterator[str]:
    """How far the first batches and their slices are off the fair shares, as counted."""
    steps = min(plan.steps_per_epoch, max(1, _ROWS_COUNTED // plan.batch_cards))
    step, row = np.indices((steps, plan.batch_cards)).reshape(2, -1)
    epoch = plan.epoch(np.int64(0))
    share = np.zeros(len(plan.counts))
    share[epoch.strata] = np.diff(epoch.ends, prepend=0) / plan.steps_per_epoch
    stratum = plan.rows(epoch, step, row).stratum.reshape(steps, plan.batch_cards)
    batch = slice_ = 0.0
    for rows in stratum:
        in_batch = np.bincount(rows, minlength=len(share))
        batch = max(batch, np.abs(in_batch - share).max())
        for replica in range(replicas):
            in_slice = np.bincount(rows[replica::replicas], minlength=len(share))
            slice_ = max(slice_, np.abs(in_slice - in_batch / replicas).max())
    yield (
        f"  fairness: in {steps:,} steps at most {batch:.3f} of a record off a fair share of the "
        f"batch, {slice_:.3f} off a replica's share of it"
    )


if __name__ == "__main__":
    sys.exit(main())
