"""Removes receipts from a dataset directory, for good: `python -m beam_jobs.forget --help`."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from beam_jobs.running.import_messages import hide_import_messages
from beam_jobs.running.stop_signals import StopSignals
from schemas.program import begin_program

if __name__ == "__main__":
    hide_import_messages()
    begin_program()


from beam_jobs.arguments.forget import forget_options, forget_parser
from beam_jobs.errors import BuildError
from beam_jobs.forget_job import add_forget
from beam_jobs.forgetting.publish import ForgetReport
from beam_jobs.options import ForgetOptions
from beam_jobs.prepare.staging import delete_staging, write_marker
from beam_jobs.running.launch import Launch, run_command, until_stopped
from beam_jobs.running.report import forget_summary
from beam_jobs.shown import shown
from beam_jobs.storage import files
from beam_jobs.writing.output import (
    check_foreign,
    check_no_unfinished_build,
    delete_unlisted,
    files_held_open,
    is_published,
    read_versions,
    write_tfds_files,
)
from beam_jobs.writing.output_lock import output_lock


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 if all ids were found and forgotten, 1 if some were nowhere, if NFS keeps a deleted file
      that a process still reads, or if the job failed; 130 or 143 if Ctrl-C or SIGTERM stopped it.
    """
    return until_stopped(lambda stop: _run(argv, stop))


def _run(argv: Sequence[str] | None, stop: StopSignals) -> int:
    parser = forget_parser()
    launch = Launch(parser, argv)
    args = launch.args
    with ExitStack() as stack:
        try:
            options = forget_options(args)
            launch.choose_runner(options)
            published = _begin(options, stack)
        except (ValueError, BuildError) as error:
            parser.error(str(error))
        add = partial(add_forget, options=options)
        if not published and (status := launch.run(add, options, stop)):
            return status
        return _end(options, args.directory)


def _begin(options: ForgetOptions, stack: ExitStack) -> bool:
    """Takes possession of the directory until the stack is closed.

    Returns:
      Whether the same command was killed after it had published its version.

    Raises:
      BuildError: nothing can be forgotten now.
    """
    check_foreign(options)
    if files.is_local(options.output):
        stack.enter_context(output_lock(options.staging))
    if is_published(options):
        return True
    check_no_unfinished_build(options)
    if not files.is_local(options.output):
        write_marker(options.staging)
    return False


def _end(options: ForgetOptions, directory: str) -> int:
    """Deletes what a kill may have left, and prints what was forgotten; returns the status."""
    write_tfds_files(options.staging, options.launch)
    delete_unlisted(options.output)
    report = options.staging.report
    if not files.exists(report):  # an earlier launch was killed while it deleted its work
        delete_staging(options.staging)
        print(f"{directory} holds none of it any more")
        return 0
    forgotten = ForgetReport.from_bytes(files.read(report))
    delete_staging(options.staging)
    kept = [version.number for version in read_versions(options.output).versions]
    print(forget_summary(forgotten, directory, kept), end="")
    status = 0
    if held := files_held_open(options.output):
        print(
            f"{directory} still holds {', '.join(held[:3])} ({len(held):,}), of deleted files that "
            "a process reads: end that process, as they may hold forgotten receipts",
            file=sys.stderr,
        )
        status = 1
    if forgotten.missing:
        names = ", ".join(map(shown, forgotten.missing[:10]))
        more = f" and {len(forgotten.missing) - 10:,} more" if len(forgotten.missing) > 10 else ""
        print(f"nowhere in {directory}: {names}{more}", file=sys.stderr)
        status = 1
    return status


if __name__ == "__main__":
    run_command(main)
