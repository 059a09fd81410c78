"""Re-reads a dataset directory and names every fault: `python -m beam_jobs.verify DIR`."""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from tqdm import tqdm

from beam_jobs import files
from beam_jobs.errors import BuildError
from beam_jobs.exclude import excluded_record, read_excluded, write_excluded
from beam_jobs.output import read_manifest
from beam_jobs.runner import beam_options
from beam_jobs.verify_files import check_descriptions, check_listings, check_names
from beam_jobs.verify_shard import Fault, ShardCheck, check_shard
from schemas.manifest import COMPLETED, EXCLUDED, MANIFEST, Manifest, dealt_histogram
from schemas.receipt import LAYOUT


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 0 if nothing but excluded records is wrong, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m beam_jobs.verify",
        allow_abbrev=False,
        description="Re-reads a dataset directory and names every fault. Ends with status 0 if "
        "nothing is wrong but records that are excluded, with 1 otherwise.",
    )
    parser.add_argument("directory", help="dataset directory, on any file system that Beam knows")
    parser.add_argument(
        "--exclude",
        action="store_true",
        help=f"list damaged records in DIRECTORY/{EXCLUDED}, beside those listed there already: "
        "training leaves them out. Shards stay as they are; delete the file to undo it",
    )
    parser.add_argument("--workers", type=int, help="processes (default: one a core)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    known, others = parser.parse_known_args(argv)
    if known.workers is not None and known.workers < 1:
        parser.error(f"--workers must be at least 1, got {known.workers}")
    try:
        options = beam_options(others)
        FileSystems.set_options(options)
        FileSystems.get_filesystem(known.directory)
    except ValueError as error:  # an unknown option, or a store whose client is not installed
        parser.error(str(error))
    standing = excludable = 0
    try:
        for fault in verify(
            known.directory,
            exclude=known.exclude,
            workers=known.workers,
            options=options,
            progress=not known.quiet,
        ):
            excluded_now = known.exclude and fault.excludable
            print(f"excluded {fault}" if excluded_now else fault)
            standing += not excluded_now
            excludable += fault.excludable
        if not standing:
            print(_praise(known.directory))
    except BuildError as error:  # a store that does not answer
        print(f"error: {error}", file=sys.stderr)
        return 1
    if standing:
        print(_verdict(known.directory, standing, excludable, known.exclude), file=sys.stderr)
    return 1 if standing else 0


def _praise(directory: str) -> str:
    manifest = read_manifest(directory)
    shards = sum(len(split.shards) for split in manifest.splits.values())
    sentence = (
        f"{directory} is sound: {manifest.counts.written:,} records in {shards:,} shards, "
        f"{len(manifest.vocabularies[LAYOUT]):,} layouts, each within one record of its fair "
        "share in every shard"
    )
    if count := len(read_excluded(directory, manifest)):
        sentence += (
            f"\n{count:,} of these records {'are' if count > 1 else 'is'} excluded: "
            f"{files.join(directory, EXCLUDED)} says why"
        )
    return sentence


def _verdict(directory: str, standing: int, excludable: int, exclude: bool) -> str:
    sentence = f"{directory} has {standing} fault{'s' if standing > 1 else ''}"
    if exclude:
        return (
            f"{sentence} that can't be excluded: restore what is named from a copy, or build the "
            "dataset again"
        )
    if excludable:
        records = f"{excludable} damaged record{'s' if excludable > 1 else ''}"
        return f"{sentence}: --exclude leaves out {records}"
    return sentence


def verify(
    directory: str,
    *,
    exclude: bool = False,
    workers: int | None = None,
    options: PipelineOptions | None = None,
    progress: bool = False,
) -> Iterator[Fault]:
    """Yields every fault of a dataset directory but those of excluded records.

    Args:
      directory: the dataset directory.
      exclude: whether to add the records of excludable faults to `excluded.json`. These faults are
        yielded last, once the file is written.
      workers: processes that read shards; None for one a core.
      options: Beam's options, such as those for S3.
      progress: whether to show a bar on standard error.

    Raises:
      BuildError: a store does not answer, or `excluded.json` can't be written.
    """
    completed = files.join(directory, COMPLETED)
    if not files.exists(completed):
        yield Fault(file=completed, message="is not there: no finished dataset, build it again")
        return
    try:
        manifest = read_manifest(directory)
    except (OSError, ValueError) as error:
        yield Fault(file=files.join(directory, MANIFEST), message=str(error))
        return
    try:
        excluded = read_excluded(directory, manifest)
    except (OSError, ValueError) as error:
        yield Fault(file=files.join(directory, EXCLUDED), message=str(error))
        return
    if files.read(completed).decode(errors="replace").strip() != manifest.digest:
        yield Fault(file=completed, message="belongs to another manifest than the one beside it")
    yield from check_names(directory, manifest)
    yield from check_descriptions(directory)
    yield from check_listings(directory, manifest)

    tasks = [
        (name, number, excluded.shards.get(shard.name, ()))
        for name, split in manifest.splits.items()
        for number, shard in enumerate(split.shards)
    ]
    checks: dict[str, list[ShardCheck]] = {name: [] for name in manifest.splits}
    newly_excluded: list[Fault] = []
    workers = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    with ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),  # a fork would inherit the clients' connections
        initializer=_start_worker,
        initargs=(options or PipelineOptions([]),),
    ) as pool:
        check_one = partial(check_shard, directory, manifest, exclude=exclude)
        results = pool.map(check_one, *zip(*tasks, strict=True))
        for (name, number, _), check in zip(
            tasks,
            tqdm(results, total=len(tasks), unit=" shards", disable=not progress),
            strict=True,
        ):
            checks[name].append(check)
            records = []
            for fault in check.faults:
                if exclude and fault.excludable:
                    newly_excluded.append(fault)
                    records.append(excluded_record(fault))
                else:
                    yield fault
            excluded = excluded.adding(manifest.splits[name].shards[number].name, records)
    yield from _check_whole(directory, manifest, checks)
    if newly_excluded:
        write_excluded(directory, excluded)
        yield from newly_excluded


def _start_worker(options: PipelineOptions) -> None:
    FileSystems.set_options(options)


def _check_whole(
    directory: str, manifest: Manifest, checks: dict[str, list[ShardCheck]]
) -> Iterator[Fault]:
    path = files.join(directory, MANIFEST)
    for name, split in manifest.splits.items():
        shards = [check.category_counts for check in checks[name]]
        if not all(LAYOUT in counts for counts in shards):
            continue  # an index can't be read: said already
        for category, expected in split.category_counts.items():
            found = sum((counts[category] for counts in shards), np.zeros(len(expected), np.int64))
            if tuple(found.tolist()) != expected:
                yield Fault(file=path, message=f"{category} counts of {name} are not the records'")
        dealt = dealt_histogram(split.category_counts[LAYOUT], len(split.shards))
        for shard, counts, expected_row in zip(split.shards, shards, dealt, strict=True):
            for layout in np.flatnonzero(counts[LAYOUT] != expected_row)[:1].tolist():
                yield Fault(
                    file=files.join(directory, shard.name),
                    message=f"holds {counts[LAYOUT][layout]} records of layout "
                    f"{manifest.vocabularies[LAYOUT][layout]!r}, its fair share is "
                    f"{expected_row[layout]}",
                )
    hashes = np.concatenate([check.id_hashes for part in checks.values() for check in part])
    if (repeated := len(hashes) - len(np.unique(hashes))) > 0:
        yield Fault(file=path, message=f"{repeated} ids stand in the dataset more than once")


if __name__ == "__main__":
    sys.exit(main())
