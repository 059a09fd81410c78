"""Reads dataset directories with PyTorch's DataLoader and Grain, through tillroll's own classes.

`python -m benchmarks.interop.torch_grain expect IDS DIRECTORY...` writes the ids of the global
batches of `make_dataset`. `pytorch IDS DIRECTORY... --results RESULTS` holds those against them
that each rank gets of `Records` and `BatchSampler`, in worker processes of PyTorch, and all records
against those of the shards; `grain` does so with Grain. Neither imports TensorFlow.
"""

import io
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import numpy as np
from PIL import Image

from benchmarks.harness.command import benchmark_parser
from benchmarks.interop.expected import ID, IMAGE, PIXELS, Comparison, compare, splits
from benchmarks.interop.results import Result, save
from pipeline import Balance, BatchSampler, InputConfig, Records

SPLIT = "train"
GLOBAL_BATCH_SIZE = 12
STEPS = 200
EPOCHS = 4  # in which PyTorch reads these steps
SEED = 7
WORKERS = 2
CASES = tuple(itertools.product((1.0, 0.3), (1, 2, 3)))  # alpha, ranks

Batches = list[list[str]]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A way to read records in worker processes.

    Attributes:
      title: its name.
      distribution: the package that it comes with.
      batches: yields the ids of each batch of a sampler, of all its iterations.
      records: yields each record, `decoded`.
      epochs: number of these iterations.
    """

    title: str
    distribution: str
    batches: Callable[[Records, BatchSampler], Iterable[list[str]]]
    records: Callable[[Records], Iterable[dict[str, Any]]]
    epochs: int = 1


def expected_ids(directory: Path) -> dict[str, list[Batches]]:
    """Returns the ids of the batches of TensorFlow: case to those of each rank."""
    return {_case(*case): _tensorflow_batches(str(directory), *case) for case in CASES}


def results(reader: Reader, directory: Path, ids: Mapping[str, list[Batches]]) -> Iterator[Result]:
    """Yields a row for each split, and for the batches of one."""
    name = f"{reader.title} {version(reader.distribution)}"
    for expected in splits(directory):
        records = Records(directory, expected.split)
        found = compare(expected.records, reader.records(records))
        yield Result.of(name, expected, "all records", found)
        if expected.split == SPLIT:
            part = f"{len(CASES)} times {STEPS} batches"
            yield Result.of(name, expected, part, batch_comparison(reader, records, ids))


def batch_comparison(
    reader: Reader, records: Records, expected: Mapping[str, list[Batches]]
) -> Comparison:
    """Holds the batches of each rank against the expected ones, in order; counts their records."""
    faults = []
    wanted_ids = read_ids = 0
    for alpha, world_size in CASES:
        for rank, wanted in enumerate(expected[_case(alpha, world_size)]):
            sampler = BatchSampler(
                records,
                global_batch_size=GLOBAL_BATCH_SIZE,
                balance=Balance(alpha=alpha),
                seed=SEED,
                rank=rank,
                world_size=world_size,
                steps=STEPS // reader.epochs,
            )
            pairs: Iterator[tuple[list[str], list[str]]] = itertools.zip_longest(
                reader.batches(records, sampler), wanted, fillvalue=[]
            )
            for step, (batch, ids) in enumerate(pairs):
                wanted_ids += len(ids)
                read_ids += len(batch)
                if batch != ids:
                    where = f"{_case(alpha, world_size)}, rank {rank}, step {step}"
                    faults.append(f"{where}: {batch}, should be {ids}")
    return Comparison(expected=wanted_ids, read=read_ids, faults=tuple(faults))


def decoded(record: Mapping[str, Any]) -> dict[str, Any]:
    """Decodes the image of a record of `Records`, as a program in a worker process would."""
    stored = record[IMAGE]
    if isinstance(stored, bytes):
        with Image.open(io.BytesIO(stored)) as image:
            return {**record, PIXELS: np.asarray(image.convert("RGB"))}
    return {**record, IMAGE: stored.tobytes(), PIXELS: stored}


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


def _torch_batches(records: Records, sampler: BatchSampler) -> Iterable[list[str]]:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        records,
        batch_sampler=sampler,
        num_workers=WORKERS,
        collate_fn=_ids,
        persistent_workers=True,
    )
    return itertools.chain.from_iterable(itertools.repeat(loader, EPOCHS))


def _torch_records(records: Records) -> Iterator[dict[str, Any]]:
    from torch.utils.data import DataLoader

    batches = DataLoader(records, batch_size=8, num_workers=WORKERS, collate_fn=_decoded_records)
    return itertools.chain.from_iterable(batches)


def _grain_batches(records: Records, sampler: BatchSampler) -> Iterable[list[str]]:
    return _grain(sampler, lambda positions: _ids([records[position] for position in positions]))


def _grain_records(records: Records) -> Iterable[dict[str, Any]]:
    return _grain(records, decoded)


def _grain(source: Any, load: Callable[[Any], Any]) -> Iterable[Any]:
    import grain

    return (
        grain.MapDataset.source(source)
        .map(load)
        # An element may be a batch, so 500 of them, the default, are too many to hold ready.
        .to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))
        .mp_prefetch(grain.MultiprocessingOptions(num_workers=WORKERS))
    )


def _ids(batch: Sequence[Mapping[str, Any]]) -> list[str]:
    return [record[ID] for record in batch]


def _decoded_records(batch: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [decoded(record) for record in batch]


_READERS = {
    "pytorch": Reader(
        title="PyTorch",
        distribution="torch",
        batches=_torch_batches,
        records=_torch_records,
        epochs=EPOCHS,
    ),
    "grain": Reader(
        title="Grain", distribution="grain", batches=_grain_batches, records=_grain_records
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    parser = benchmark_parser("interop.torch_grain", "STEP IDS DIRECTORY...", __doc__)
    parser.add_argument(
        "step", choices=("expect", *_READERS), metavar="STEP", help="expect, pytorch or grain"
    )
    parser.add_argument("ids", type=Path, metavar="IDS", help="JSON file of the ids")
    parser.add_argument(
        "directories", nargs="+", type=Path, metavar="DIRECTORY", help="dataset directories"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="RESULTS",
        help="JSON file of the rows that a reader writes (default: none)",
    )
    args = parser.parse(argv)
    if args.step == "expect":
        ids = {str(directory): expected_ids(directory) for directory in args.directories}
        args.ids.write_text(json.dumps(ids))
        return 0
    if args.results is None:
        parser.error(f"{args.step} needs --results")
    ids = json.loads(args.ids.read_text())
    rows = [
        row
        for directory in args.directories
        for row in results(_READERS[args.step], directory, ids[str(directory)])
    ]
    if "tensorflow" in sys.modules:
        raise SystemExit("TensorFlow was imported, and should not be needed")
    save(rows, args.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
