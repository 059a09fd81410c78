"""Re-reads a dataset directory and names every fault: `python -m beam_jobs.verify DIR`."""

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace

from beam_jobs.running.import_messages import hide_import_messages
from beam_jobs.running.stop_signals import StopSignals, leave_at_stop_signals

if __name__ in ("__main__", "__mp_main__"):  # also of the processes that check shards
    hide_import_messages()
if __name__ == "__main__":
    leave_at_stop_signals()  # until `main` heeds them: the imports below take seconds

import numpy as np
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from tqdm import tqdm

from beam_jobs.errors import BuildError
from beam_jobs.running.runner import beam_options
from beam_jobs.storage import files
from beam_jobs.verification.exclude import excluded_record, read_excluded, write_excluded
from beam_jobs.verification.shard import Fault, ShardCheck
from beam_jobs.verification.side_files import check_files, check_names
from beam_jobs.verification.workers import check_shards
from beam_jobs.writing.output import read_manifest
from schemas.command_line import CommandParser, Flag, Options
from schemas.excluded import Excluded
from schemas.manifest import COMPLETED, EXCLUDED, MANIFEST, Manifest, check_completed
from schemas.receipt import LAYOUT


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 if nothing but excluded records is wrong, 1 if something is, 130 or 143 if Ctrl-C or SIGTERM
      stopped it.
    """
    with StopSignals() as stop:
        try:
            return _run(argv)
        except KeyboardInterrupt:
            print(stop.sentence(local=True, resumes=False), file=sys.stderr)
            return stop.exit_status


def _parser() -> CommandParser:
    parser = CommandParser(
        "beam_jobs.verify",
        "DIRECTORY",
        "Re-reads a dataset directory and names every fault. Ends with status 0 if nothing is "
        "wrong but records that are excluded, with 1 otherwise.",
        epilog="Every other option is passed to Beam, such as those for S3.",
    )
    parser.add_argument(
        "directory",
        metavar="DIRECTORY",
        help="dataset directory, on any file system that Beam knows",
    )
    Options(
        verify,
        exclude=Flag(
            help=f"list damaged records in DIRECTORY/{EXCLUDED}, beside those listed there "
            "already: training leaves them out. Shards stay as they are; delete the file to undo it"
        ),
        workers=Flag(default="one per core", help="processes that read shards"),
    ).add_to(parser, "exclude", "workers")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def _run(argv: Sequence[str] | None) -> int:
    parser = _parser()
    args, others = parser.parse_known_args(argv)
    if args.workers is not None and args.workers < 1:
        parser.error(f"--workers must be at least 1, got {args.workers}")
    try:
        options = beam_options(others)
        FileSystems.set_options(options)
        FileSystems.get_filesystem(args.directory)
    except ValueError as error:  # an unknown option, or a store whose client is not installed
        parser.error(str(error))
    standing = excludable = 0
    try:
        for fault in verify(
            args.directory,
            exclude=args.exclude,
            workers=args.workers,
            options=options,
            progress=not args.quiet,
        ):
            excluded_now = args.exclude and fault.excludable
            print(f"excluded {fault}" if excluded_now else fault)
            standing += not excluded_now
            excludable += fault.excludable
        if not standing:
            print(_summary(args.directory))
    except BuildError as error:  # a store that does not answer
        print(f"error: {error}", file=sys.stderr)
        return 1
    if standing:
        print(_failure(args.directory, standing, excludable, args.exclude), file=sys.stderr)
    return 1 if standing else 0


def _summary(directory: str) -> str:
    manifest = read_manifest(directory)
    shards = sum(len(split.shards) for split in manifest.splits.values())
    sentence = (
        f"{directory} is valid: {manifest.counts.written:,} records in {shards:,} shards, "
        f"{len(manifest.vocabularies[LAYOUT]):,} layouts, each within one record of its fair "
        "share in every shard"
    )
    if count := len(read_excluded(directory, manifest)):
        sentence += (
            f"\n{count:,} of these records {'are' if count > 1 else 'is'} excluded: "
            f"{files.join(directory, EXCLUDED)} says why"
        )
    return sentence


def _failure(directory: str, standing: int, excludable: int, exclude: bool) -> str:
    sentence = f"{directory} has {standing} fault{'s' if standing > 1 else ''}"
    if exclude:
        return (
            f"{sentence} that can't be excluded: restore the files named from a copy, or build the "
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
      workers: processes that read shards; None for one per core.
      options: Beam's options, such as those for S3.
      progress: whether to show a bar on standard error.

    Raises:
      BuildError: a store does not answer, or `excluded.json` can't be written.
    """
    manifest, faults = _read_manifest(directory)
    yield from faults
    if manifest is None:
        return
    # What a damaged manifest says of records is no reason to leave one out.
    can_exclude = not faults
    try:
        excluded = read_excluded(directory, manifest)
    except (OSError, ValueError) as error:
        yield Fault(file=files.join(directory, EXCLUDED), message=str(error))
        excluded = Excluded(dataset_digest=manifest.digest)
        can_exclude = False  # it would replace the file
    exclude = exclude and can_exclude
    yield from check_names(directory, manifest)
    yield from check_files(directory, manifest)

    totals = Totals(manifest)
    newly_excluded: list[Fault] = []
    for split, shard_name, check in _checked_shards(
        directory,
        manifest,
        excluded,
        exclude=exclude,
        workers=workers,
        options=options,
        progress=progress,
    ):
        totals.add(split, check)
        records = []
        for fault in check.faults:
            if exclude and fault.excludable:
                newly_excluded.append(fault)
                records.append(excluded_record(fault))
            else:
                yield replace(fault, excludable=fault.excludable and can_exclude)
        excluded = excluded.adding(shard_name, records)
    yield from totals.faults(directory)
    if newly_excluded:
        write_excluded(directory, excluded)
        yield from newly_excluded


def _checked_shards(
    directory: str,
    manifest: Manifest,
    excluded: Excluded,
    *,
    exclude: bool,
    workers: int | None,
    options: PipelineOptions | None,
    progress: bool,
) -> Iterator[tuple[str, str, ShardCheck]]:
    """Yields (split, name of the shard, its check) of all shards; arguments as in `verify`."""
    tasks = [
        (split, number, excluded.shards.get(shard.name, ()))
        for split, shards in manifest.splits.items()
        for number, shard in enumerate(shards.shards)
    ]
    checks = check_shards(
        directory, manifest, tasks, exclude=exclude, workers=workers, options=options
    )
    bar = tqdm(checks, total=len(tasks), unit=" shards", disable=not progress)
    for (split, number, _), check in zip(tasks, bar, strict=True):
        yield split, manifest.splits[split].shards[number].name, check


def _read_manifest(directory: str) -> tuple[Manifest | None, list[Fault]]:
    """Reads the manifest, None if it can't be read, and lists its faults."""
    completed, path = files.join(directory, COMPLETED), files.join(directory, MANIFEST)
    if not files.exists(completed):
        message = "is not there: the dataset is not finished, build it again"
        return None, [Fault(file=completed, message=message)]
    faults = []
    try:
        text = files.read(path)
        try:
            check_completed(files.read(completed), text)
        except ValueError as error:
            faults.append(Fault(file=path, message=str(error)))
        return Manifest.from_json(text), faults
    except (OSError, ValueError) as error:
        return None, [*faults, Fault(file=path, message=str(error))]


class Totals:
    """Sums over all shards, added up shard by shard: the counts of single shards are not kept."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._counts = {
            (split, name): np.zeros(len(values), np.int64)
            for split in manifest.splits
            for name, values in manifest.vocabularies.items()
        }
        self._unreadable: set[str] = set()
        self._id_hashes = array("Q")

    def add(self, split: str, check: ShardCheck) -> None:
        """Adds a shard of a split."""
        if not check.codes:
            self._unreadable.add(split)
        for name, codes in check.codes.items():
            # Counts each code; indexing would count repeated ones once.
            np.add.at(self._counts[split, name], codes, 1)
        self._id_hashes.frombytes(check.id_hashes.tobytes())

    def faults(self, directory: str) -> Iterator[Fault]:
        """Yields the faults of the sums."""
        path = files.join(directory, MANIFEST)
        for (split, name), counts in self._counts.items():
            if split in self._unreadable:
                continue  # an index can't be read, which is a fault already
            if self._manifest.splits[split].category_counts[name] != tuple(counts.tolist()):
                yield Fault(file=path, message=f"{name} counts of {split} differ from its records")
        hashes = np.frombuffer(self._id_hashes, np.uint64)
        hashes.sort()
        if repeated := int((hashes[1:] == hashes[:-1]).sum()):
            yield Fault(file=path, message=f"{repeated} ids occur more than once in the dataset")


if __name__ == "__main__":
    sys.exit(main())
