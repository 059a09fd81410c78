"""Deals all generations of a dataset anew, as one: `python -m beam_jobs.compact --help`.

On demand, it finds the layouts of all records anew.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from beam_jobs.running.import_messages import hide_import_messages
from beam_jobs.running.stop_signals import StopSignals
from schemas.program import begin_program

if __name__ == "__main__":
    hide_import_messages()
    begin_program()


from beam_jobs.arguments.compact import asks_for_more, compact_options, compact_parser
from beam_jobs.compact_job import add_compact
from beam_jobs.errors import BuildError
from beam_jobs.models.model import INSTALL, has_tensorflow
from beam_jobs.near_duplicates.fingerprinter import has_other_fingerprints
from beam_jobs.options import CompactOptions
from beam_jobs.prepare.staging import delete_staging, write_marker
from beam_jobs.running import report
from beam_jobs.running.launch import Launch, run_command, until_stopped
from beam_jobs.storage import files
from beam_jobs.writing.output import (
    check_foreign,
    check_no_unfinished_build,
    delete_unlisted,
    is_published,
    read_excluded,
    read_manifest,
    write_tfds_files,
)
from beam_jobs.writing.output_lock import output_lock
from schemas.file_names import excluded_name
from schemas.raw_pixels import are_aligned
from schemas.restart_rows import all_restart_rows

_ALREADY_ONE = "its records are one generation already: nothing was done"
_ALREADY_FOUND = "its layouts were found before this command was killed: nothing was left to do"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 if all records are in one generation, 1 if the job failed, 130 or 143 if Ctrl-C or SIGTERM
      stopped it.
    """
    return until_stopped(lambda stop: _run(argv, stop))


def _run(argv: Sequence[str] | None, stop: StopSignals) -> int:
    parser = compact_parser()
    launch = Launch(parser, argv)
    args = launch.args
    with ExitStack() as stack:
        try:
            options = compact_options(args)
            launch.choose_runner(options)
            if options.layout_model and launch.is_local and not has_tensorflow():
                raise BuildError(INSTALL)
            if not _begin(options, stack, deals_anew=asks_for_more(args)):
                print(_summary(options, args.directory), end="")
                print(_ALREADY_FOUND if options.finds_layouts else _ALREADY_ONE)
                return 0
        except (ValueError, BuildError) as error:
            parser.error(str(error))
        started_s = time.monotonic()
        add = partial(add_compact, options=options)
        kept = options.staging if options.finds_layouts else None  # the descriptors
        if status := launch.run(add, options, stop, kept=kept):
            return status
        print(_summary(options, args.directory), end="")
        print(f"  {time.monotonic() - started_s:.0f} s")
        return 0


def _summary(options: CompactOptions, directory: str) -> str:
    return report.summary(read_manifest(options.output), directory, keeps_splits=True)


def _begin(options: CompactOptions, stack: ExitStack, *, deals_anew: bool) -> bool:
    """Takes possession of the directory until the stack is closed.

    Returns:
      Whether there is anything to do: several generations, fingerprints of another version, raw
      pixels that an older version did not align, JPEG files without the restart rows that were
      asked for, or `deals_anew`.

    Raises:
      BuildError: the records can't be dealt now.
    """
    check_foreign(options)
    if files.is_local(options.output):
        stack.enter_context(output_lock(options.staging))
    if is_published(options):  # by a compaction that was killed before its clean-up
        write_tfds_files(options.staging, options.launch)
        delete_staging(options.staging)
        return False
    check_no_unfinished_build(options)
    delete_unlisted(options.output)  # left by a forgetting that was killed
    manifest = read_manifest(options.output)
    if excluded := read_excluded(options.output, manifest):
        raise BuildError(
            f"{files.join(options.output, excluded_name(manifest.version))} lists damaged records "
            f"({len(excluded):,}), whose bytes can't be dealt: restore the shards it names from a "
            "copy and delete that file, or give the records up with python -m beam_jobs.forget "
            f"{options.output} --excluded"
        )
    deals_anew |= has_other_fingerprints(manifest.build_options)
    is_raw = manifest.build_options["image"]["encoding"] == "raw"
    deals_anew |= is_raw and not are_aligned(manifest)
    deals_anew |= options.image.get("restart_rows", False) and not all_restart_rows(manifest)
    if len(manifest.generations) == 1 and not deals_anew:
        return False
    if not manifest.counts.written:
        raise BuildError(f"{options.output} holds no records to deal: append receipts first")
    if not files.is_local(options.output):
        write_marker(options.staging)
    return True


if __name__ == "__main__":
    run_command(main)
