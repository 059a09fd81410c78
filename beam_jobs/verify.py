"""Re-reads a dataset directory and names every fault: `python -m beam_jobs.verify DIR`."""

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace

from beam_jobs.running.import_messages import hide_import_messages
from beam_jobs.running.stop_signals import StopSignals
from schemas.program import begin_program, run_program

if __name__ in ("__main__", "__mp_main__"):  # also of the processes that check shards
    hide_import_messages()
if __name__ == "__main__":
    begin_program()

import numpy as np
import numpy.typing as npt
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from tqdm import tqdm

from beam_jobs.errors import BuildError
from beam_jobs.running.runner import beam_options
from beam_jobs.storage import files
from beam_jobs.verification.exclude import excluded_record, write_excluded
from beam_jobs.verification.shard import Fault, ShardCheck
from beam_jobs.verification.side_files import (
    check_files,
    check_least_certain,
    check_names,
    check_tfds_files,
)
from beam_jobs.verification.workers import ShardTask, check_shards
from beam_jobs.writing.output import read_excluded, read_manifest, read_versions
from schemas.command_line import CommandParser, Flag, Options
from schemas.excluded import Excluded, ExcludedRecord
from schemas.file_names import COMPLETED, excluded_name, manifest_name
from schemas.manifest import Generation, Manifest
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
            help="list damaged records in DIRECTORY/versions/*/excluded.json, beside those listed "
            "there already: training leaves them out. Shards stay as they are; delete the file to "
            "undo it"
        ),
        version=Flag(metavar="N", default="all", help="version to check"),
        workers=Flag(default="one per core", help="processes that read shards"),
    ).add_to(parser, "exclude", "version", "workers")
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
        if args.version is not None:
            _check_version(parser, args.directory, args.version)
        for fault in verify(
            args.directory,
            version=args.version,
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
            print(_summary(args.directory, args.version))
    except BuildError as error:  # a store that does not answer
        print(f"error: {error}", file=sys.stderr)
        return 1
    if standing:
        print(_failure(args.directory, standing, excludable, args.exclude), file=sys.stderr)
    return 1 if standing else 0


def _check_version(parser: CommandParser, directory: str, version: int) -> None:
    """Ends the command if a dataset lacks a version; that it can't be read is a fault."""
    try:
        versions = read_versions(directory)
    except (OSError, ValueError):
        return  # `verify` names it
    try:
        versions.find(version)
    except ValueError as error:
        parser.error(f"{directory}: {error}")


def _summary(directory: str, version: int | None) -> str:
    manifest = read_manifest(directory, version)
    shards = sum(len(split.shards) for split in manifest.splits.values())
    sentence = (
        f"{directory} is valid: {manifest.counts.written:,} records in {shards:,} shards, "
        f"{len(manifest.vocabularies[LAYOUT]):,} layouts, each within one record of its fair "
        "share in every shard"
    )
    if count := len(read_excluded(directory, manifest)):
        sentence += (
            f"\n{count:,} of these records {'are' if count > 1 else 'is'} excluded: "
            f"{files.join(directory, excluded_name(manifest.version))} says why"
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
    version: int | None = None,
    exclude: bool = False,
    workers: int | None = None,
    options: PipelineOptions | None = None,
    progress: bool = False,
) -> Iterator[Fault]:
    """Yields every fault of a dataset directory but those of excluded records.

    Args:
      directory: the dataset directory.
      version: the version to check; None for all, and for files that belong to none.
      exclude: whether to add the records of excludable faults to the `excluded.json` of each
        version that has them. These faults are yielded last, once the files are written.
      workers: processes that read shards; None for one per core.
      options: Beam's options, such as those for S3.
      progress: whether to show a bar on standard error.

    Raises:
      BuildError: a store does not answer, or `excluded.json` can't be written.
      ValueError: there is no such version.
    """
    manifests, faults = _read_manifests(directory, version)
    yield from faults
    # What a damaged manifest says of records is no reason to leave one out.
    can_exclude = not faults
    excluded = {}
    for manifest in manifests:
        try:
            excluded[manifest.version] = read_excluded(directory, manifest)
        except (OSError, ValueError) as error:
            path = files.join(directory, excluded_name(manifest.version))
            yield Fault(file=path, message=str(error))
            excluded[manifest.version] = Excluded(dataset_digest=manifest.digest)
            can_exclude = False  # it would replace the file
    excluded_before = dict(excluded)
    exclude = exclude and can_exclude
    if version is None and manifests and not faults:
        yield from check_names(directory, manifests)
        yield from check_tfds_files(directory, manifests[0])
    newly_excluded: list[Fault] = []
    checked: list[Generation] = []  # versions have most of their generations in common
    for manifest in manifests:
        yield from check_files(directory, manifest)
        totals = Totals(manifest)
        for task, check in _checked_shards(
            directory,
            manifest,
            [at for at, one in enumerate(manifest.generations) if one not in checked],
            excluded[manifest.version],
            exclude=exclude,
            workers=workers,
            options=options,
            progress=progress,
        ):
            totals.add(task, check)
            records = []
            for fault in check.faults:
                if exclude and fault.excludable:
                    newly_excluded.append(fault)
                    records.append(excluded_record(fault))
                else:
                    yield replace(fault, excludable=fault.excludable and can_exclude)
            for other in manifests:
                excluded[other.version] = _adding(excluded[other.version], other, task, records)
        yield from totals.faults(directory)
        if manifest is manifests[0] and totals.is_complete:  # of others, not all shards were read
            yield from check_least_certain(directory, manifest, totals.id_hashes())
        checked += manifest.generations
    if newly_excluded:
        for manifest in manifests:
            if excluded[manifest.version] != excluded_before[manifest.version]:
                write_excluded(directory, manifest, excluded[manifest.version])
        yield from newly_excluded


def _checked_shards(
    directory: str,
    manifest: Manifest,
    generations: Sequence[int],
    excluded: Excluded,
    *,
    exclude: bool,
    workers: int | None,
    options: PipelineOptions | None,
    progress: bool,
) -> Iterator[tuple[ShardTask, ShardCheck]]:
    """Yields the check of each shard of some generations; other arguments are as in `verify`."""
    tasks = [
        ShardTask(
            generation=at,
            split=name,
            number=number,
            shard=shard,
            excluded=excluded.shards.get(shard.name, ()),
        )
        for at in generations
        for name, part in manifest.generations[at].splits.items()
        for number, shard in enumerate(part.shards)
    ]
    checks = check_shards(
        directory, manifest, tasks, exclude=exclude, workers=workers, options=options
    )
    bar = tqdm(checks, total=len(tasks), unit=" shards", disable=not progress or not tasks)
    yield from zip(tasks, bar, strict=True)


def _adding(
    excluded: Excluded, manifest: Manifest, task: ShardTask, records: Sequence[ExcludedRecord]
) -> Excluded:
    """Returns a version's exclusions with records of a shard, if the version has that shard."""
    has_shard = task.shard in manifest.splits[task.split].shards if records else False
    return excluded.adding(task.shard.name, records) if has_shard else excluded


def _read_manifests(directory: str, version: int | None) -> tuple[list[Manifest], list[Fault]]:
    """Reads the manifests of a version or of all, the newest first, and lists their faults."""
    completed = files.join(directory, COMPLETED)
    if not files.exists(completed):
        message = "is not there: the dataset is not finished, build it again"
        return [], [Fault(file=completed, message=message)]
    try:
        versions = read_versions(directory)
    except (OSError, ValueError) as error:
        return [], [Fault(file=completed, message=str(error))]
    manifests, faults = [], []
    chosen = versions.versions[::-1] if version is None else [versions.find(version)]
    for one in chosen:
        path = files.join(directory, manifest_name(one.number))
        try:
            data = files.read(path)
            try:
                one.check(data)
            except ValueError as error:
                faults.append(Fault(file=path, message=str(error)))
            manifests.append(one.parse(data))
        except (OSError, ValueError) as error:
            faults.append(Fault(file=path, message=str(error)))
    return manifests, faults


class Totals:
    """Sums over shards, added up one by one: the counts of single shards are not kept."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._counts: dict[tuple[int, str, str], npt.NDArray[np.int64]] = {}
        self._unreadable: set[tuple[int, str]] = set()
        self._id_hashes = array("Q")

    def add(self, task: ShardTask, check: ShardCheck) -> None:
        """Adds a shard."""
        if not check.codes:
            self._unreadable.add((task.generation, task.split))
        for name, codes in check.codes.items():
            size = len(self._manifest.vocabularies[name])
            key = (task.generation, task.split, name)
            # Counts each code; indexing would count repeated ones once.
            np.add.at(self._counts.setdefault(key, np.zeros(size, np.int64)), codes, 1)
        self._id_hashes.frombytes(check.id_hashes.tobytes())

    @property
    def is_complete(self) -> bool:
        """Tells whether the index of each shard could be read."""
        return not self._unreadable

    def id_hashes(self) -> npt.NDArray[np.uint64]:
        """Returns the hashes of the ids of all records, ascending."""
        hashes = np.frombuffer(self._id_hashes, np.uint64)
        hashes.sort()  # in its place, as a copy may have a gigabyte
        return hashes

    def faults(self, directory: str) -> Iterator[Fault]:
        """Yields the faults of the sums."""
        path = files.join(directory, manifest_name(self._manifest.version))
        for (generation, split, name), counts in self._counts.items():
            if (generation, split) in self._unreadable:
                continue  # an index can't be read, which is a fault already
            part = self._manifest.generations[generation].splits[split]
            expected = np.array(part.category_counts[name], np.int64)
            # An older generation has no record of the values that came later.
            if not np.array_equal(counts, np.pad(expected, (0, len(counts) - len(expected)))):
                yield Fault(file=path, message=f"{name} counts of {split} differ from its records")
        hashes = self.id_hashes()
        if repeated := int((hashes[1:] == hashes[:-1]).sum()):
            yield Fault(file=path, message=f"{repeated} ids occur more than once in the dataset")


if __name__ == "__main__":
    run_program(main)
