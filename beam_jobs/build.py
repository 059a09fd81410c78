"""Turns receipt images into a dataset directory: `python -m beam_jobs.build --help`."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from beam_jobs.running.import_messages import hide_import_messages
from beam_jobs.running.stop_signals import StopSignals
from schemas.program import begin_program

if __name__ == "__main__":
    hide_import_messages()
    begin_program()

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, TestOptions

from beam_jobs.arguments.build import build_options, build_parser
from beam_jobs.errors import BuildError
from beam_jobs.job import add_build, add_dry_run
from beam_jobs.models.model import INSTALL, has_tensorflow
from beam_jobs.options import BuildOptions
from beam_jobs.prepare.staging import delete_staging, remove_if_empty, write_marker
from beam_jobs.running import report
from beam_jobs.running.launch import Launch, run_command, until_stopped
from beam_jobs.sources.folders import SKIPPED_SYSTEM_FILES
from beam_jobs.storage import files
from beam_jobs.writing.output import (
    check_finished,
    check_foreign,
    delete_unlisted,
    is_published,
    read_manifest,
    read_spellings,
    read_summary_of,
    write_tfds_files,
)
from beam_jobs.writing.output_lock import make_folder, output_lock
from schemas.statistics import RecordSummary

_ALREADY_PUBLISHED = (
    "published by an earlier run of the same command: --overwrite builds it again, from the inputs "
    "as they are now"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 if the dataset is complete (or the dry run's plan was shown), 1 if the build failed, 130 or
      143 if Ctrl-C or SIGTERM stopped it.
    """
    return until_stopped(lambda stop: _run(argv, stop))


def _run(argv: Sequence[str] | None, stop: StopSignals) -> int:
    parser = build_parser()
    launch = Launch(parser, argv)
    args = launch.args
    with ExitStack() as stack:
        # The arguments and the output directory: what is wrong with them is found before the job.
        try:
            options = build_options(args, given_flags(argv))
            launch.choose_runner(options)
            if options.layout_model and launch.is_local and not has_tensorflow():
                raise BuildError(INSTALL)
            is_staged_only = _only_staged(launch.beam_options)
            if not is_staged_only and not args.dry_run and _begin(options, stack):
                print(report.summary(read_manifest(options.output), args.output), end="")
                print(_ALREADY_PUBLISHED)
                return 0
            if args.dry_run:
                if options.method and options.method.needs_images:
                    raise ValueError(
                        f"--dry-run reads no image, and --layout-from {options.layout_from} finds "
                        "layouts by images: build without --dry-run"
                    )
                if options.compare_images:
                    raise ValueError(
                        "--dry-run reads no image, and --compare-images compares them: build "
                        "without --dry-run"
                    )
                options = stack.enter_context(_dry_run_options(options))
        except (ValueError, BuildError) as error:
            parser.error(str(error))
        started_s = time.monotonic()

        if status := launch.run(
            partial(add_dry_run if args.dry_run else add_build, options=options),
            options,
            stop,
            kept=None if args.dry_run else options.staging,
            has_bar=not args.dry_run,
            is_staged_only=is_staged_only,
        ):
            return status
        if is_staged_only:
            print("the job was staged, not run")
        elif args.dry_run:
            _print_plan(options, args.output)
        else:
            elapsed_s = time.monotonic() - started_s
            skipped = launch.count(SKIPPED_SYSTEM_FILES)
            _print_summary(options, args.output, elapsed_s=elapsed_s, skipped=skipped)
        return 0


def given_flags(argv: Sequence[str] | None) -> frozenset[str]:
    """Flags that a command line gives, such as --quality of `--quality=80`."""
    tokens = sys.argv[1:] if argv is None else argv
    return frozenset(token.partition("=")[0] for token in tokens if token.startswith("--"))


def _print_plan(options: BuildOptions, output: str) -> None:
    outline = json.loads(files.read(options.staging.plan))
    print(report.plan_summary(outline, options.splits, output), end="")


def _print_summary(options: BuildOptions, output: str, *, elapsed_s: float, skipped: int) -> None:
    manifest = read_manifest(options.output)
    if options.base and manifest.version == options.base.version:
        print(f"{output} has all inputs already: version {manifest.version} is the newest")
        return
    spellings = read_spellings(options.output, manifest)
    print(report.summary(manifest, output, spellings.names if spellings else {}), end="")
    newest = manifest.generations[-1]
    records = RecordSummary.merged(read_summary_of(options.output, newest).values())
    image = newest.build_options["image"]
    warnings = report.warn_of_boxes(records, image) + report.warn_of_narrow_images(records, image)
    print(warnings, end="")
    print(report.describe_skipped(skipped), end="")
    print(f"  {elapsed_s:.0f} s, {newest.counts.inputs / elapsed_s:.1f} images/s")


def _begin(options: BuildOptions, stack: ExitStack) -> bool:
    """Takes possession of the output directory until the stack is closed.

    Returns:
      Whether it holds the dataset already, published by a build that was killed afterwards.

    Raises:
      BuildError: the output can't be built in, or must not be.
    """
    check_foreign(options)
    local = files.is_local(options.output)
    if local:
        stack.enter_context(output_lock(options.staging))
    # What replaces a dataset is to be made from the inputs as they are now, which the request does
    # not cover.
    if not options.overwrite and is_published(options):
        write_tfds_files(options.staging, options.launch)
        delete_staging(options.staging)
        if options.base is None:
            return True
        # The same command may append something else on another day: the build goes on.
    check_finished(options)
    if options.base:
        delete_unlisted(options.output)  # left by a forgetting that was killed
    if not local:
        write_marker(options.staging)
    return False


@contextmanager
def _dry_run_options(options: BuildOptions) -> Iterator[BuildOptions]:
    """Options of a dry run, which leaves the work of an interrupted build alone."""
    folder = options.staging.dry_run(options.launch)
    if files.is_local(folder):
        make_folder(Path(folder), options.output)
    try:
        yield replace(options, output=folder)
    finally:
        files.delete_tree(folder)
        if files.is_local(folder):
            remove_if_empty(Path(options.staging.directory))
            remove_if_empty(Path(options.output))


def _only_staged(options: PipelineOptions) -> bool:
    cloud = options.view_as(GoogleCloudOptions)
    return bool(cloud.template_location or options.view_as(TestOptions).dry_run)


if __name__ == "__main__":
    run_command(main)
