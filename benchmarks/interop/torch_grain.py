"""Checks that PyTorch's DataLoader and Grain get the global batches that TensorFlow gets.

`python -m benchmarks.interop.torch_grain expect DATA_DIR IDS` writes the ids of the batches of
`make_dataset`, and `check DATA_DIR IDS` holds those against them that each rank reads through
`Records` and `BatchSampler`, with worker processes of PyTorch's DataLoader and of Grain. The second
step imports no TensorFlow. Its status is 1 if any batch differs.
"""

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

from benchmarks.harness.command import benchmark_parser
from benchmarks.harness.timing import table
from pipeline import Balance, BatchSampler, InputConfig, Records

SPLIT = "train"
GLOBAL_BATCH_SIZE = 12
STEPS = 200
SEED = 7
WORKERS = 2
ALPHAS = (1.0, 0.3)
WORLD_SIZES = (1, 2, 3)
_ID = "image/source_id"

Batches = list[list[str]]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("interop.torch_grain", "STEP DATA_DIR IDS", __doc__)
    parser.add_argument("step", choices=("expect", "check"), metavar="STEP", help="expect or check")
    parser.add_argument("data_dir", metavar="DATA_DIR", help="local dataset directory")
    parser.add_argument("ids", type=Path, metavar="IDS", help="JSON file of the ids")
    args = parser.parse(argv)
    if args.step == "expect":
        found = {_case(*case): _tensorflow_batches(args.data_dir, *case) for case in _cases()}
        args.ids.write_text(json.dumps(found))
        return 0
    rows = comparison(args.data_dir, json.loads(args.ids.read_text()))
    print(table(rows))
    print("TensorFlow was imported" if "tensorflow" in sys.modules else "TensorFlow not imported")
    return int(any(row["different"] for row in rows))


def comparison(data_dir: str, expected: dict[str, list[Batches]]) -> list[dict[str, Any]]:
    """Makes a row for each reader, alpha and number of ranks."""
    records = Records(data_dir, SPLIT)
    rows = []
    for (name, read), (alpha, world_size) in itertools.product(_READERS.items(), _cases()):
        different = compared = 0
        for rank, wanted in enumerate(expected[_case(alpha, world_size)]):
            sampler = BatchSampler(
                records,
                global_batch_size=GLOBAL_BATCH_SIZE,
                balance=Balance(alpha=alpha),
                seed=SEED,
                rank=rank,
                world_size=world_size,
                steps=STEPS,
            )
            for batch, ids in itertools.zip_longest(read(records, sampler), wanted):
                different += batch != ids
                compared += 1
        rows.append(
            {
                "reader": name,
                "alpha": alpha,
                "ranks": world_size,
                "batches of ranks": compared,
                "different": different,
            }
        )
    return rows


def _cases() -> Iterator[tuple[float, int]]:
    return itertools.product(ALPHAS, WORLD_SIZES)


def _case(alpha: float, world_size: int) -> str:
    return f"alpha {alpha}, {world_size} ranks"


def _tensorflow_batches(data_dir: str, alpha: float, world_size: int) -> list[Batches]:
    """Returns the ids of the batches of each rank."""
    import tensorflow as tf

    from pipeline import make_dataset

    config = InputConfig(
        height=8, width=8, features=("id", "image"), dtype="uint8", balance=Balance(alpha=alpha)
    )

    def of_rank(rank: int) -> Batches:
        dataset = make_dataset(
            data_dir,
            split=SPLIT,
            global_batch_size=GLOBAL_BATCH_SIZE,
            config=config,
            seed=SEED,
            input_context=tf.distribute.InputContext(world_size, rank, world_size),
        )
        batches = dataset.take(STEPS).as_numpy_iterator()
        return [[id_.decode() for id_ in batch["id"].tolist()] for batch in batches]

    return [of_rank(rank) for rank in range(world_size)]


def _torch_batches(records: Records, sampler: BatchSampler) -> Iterator[list[str]]:
    from torch.utils.data import DataLoader

    return iter(DataLoader(records, batch_sampler=sampler, num_workers=WORKERS, collate_fn=_ids))


def _grain_batches(records: Records, sampler: BatchSampler) -> Iterator[list[str]]:
    import grain

    return iter(
        grain.MapDataset.source(sampler)
        .map(lambda positions: _ids([records[position] for position in positions]))
        # An element is a batch, so 500 of them, the default, are too many to hold ready.
        .to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))
        .mp_prefetch(grain.MultiprocessingOptions(num_workers=WORKERS))
    )


def _ids(batch: Sequence[dict[str, Any]]) -> list[str]:
    return [record[_ID] for record in batch]


_READERS: dict[str, Callable[[Records, BatchSampler], Iterator[list[str]]]] = {
    f"PyTorch DataLoader, {WORKERS} workers": _torch_batches,
    f"Grain, {WORKERS} workers": _grain_batches,
}

if __name__ == "__main__":
    sys.exit(main())
