"""Turns receipt images into a dataset directory: `python -m beam_jobs.build --help`."""

import json
import logging
import os
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, TestOptions

from beam_jobs import arguments, files, progress, report
from beam_jobs.errors import BuildError, build_error_in
from beam_jobs.job import add_build, add_dry_run
from beam_jobs.output import check_output, delete_staging, is_published, read_manifest
from beam_jobs.runner import beam_options, choose_runner, is_local_runner
from beam_jobs.shard_plan import PLAN_NAME


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 if the dataset is complete (or the dry run's plan was shown), 1 if the build failed.
    """
    parser = arguments.parser()
    known, others = parser.parse_known_args(argv)
    local = is_local_runner(known.runner)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL if local else logging.INFO)
    try:
        pipeline_options = beam_options(others)
        FileSystems.set_options(pipeline_options)  # for the files that this process looks at
        options = arguments.build_options(known)
        workers = len(os.sched_getaffinity(0)) if known.workers is None else known.workers
        runner = choose_runner(known.runner, pipeline_options, workers)
        staged_only = _only_staged(pipeline_options)
        if not staged_only and not known.dry_run:
            if is_published(options):
                delete_staging(options.staging)
                print(report.summary(read_manifest(options.output), known.output), end="")
                return 0
            check_output(options)
    except (ValueError, BuildError) as error:
        parser.error(str(error))
    if known.dry_run:  # must not touch what an interrupted build has left
        options = replace(options, output=f"{options.output}.plan-{uuid.uuid4().hex}")
    started = time.monotonic()
    try:
        pipeline = beam.Pipeline(runner=runner, options=pipeline_options)
        (add_dry_run if known.dry_run else add_build)(pipeline, options)
        with progress.shown(options, enabled=local and not known.quiet and not known.dry_run):
            result = pipeline.run()
            if staged_only:
                print("the job was staged, not run")
                return 0
            result.wait_until_finish()
        if known.dry_run:
            outline = json.loads(files.read(files.join(options.staging, PLAN_NAME)))
            print(report.plan_summary(outline, options.splits, known.output), end="")
            return 0
    except KeyboardInterrupt:
        resumes = "" if known.dry_run else f"; the same command resumes from {options.staging}"
        print(f"interrupted{resumes}", file=sys.stderr)
        return 1
    except Exception as error:
        if (message := build_error_in(error)) is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 1
    finally:
        if known.dry_run:
            files.delete_tree(options.staging)
    elapsed_s = time.monotonic() - started
    manifest = read_manifest(options.output)
    print(report.summary(manifest, known.output), end="")
    print(f"  {elapsed_s:.0f} s, {manifest.counts.inputs / elapsed_s:.1f} images/s")
    return 0


def _only_staged(options: PipelineOptions) -> bool:
    cloud = options.view_as(GoogleCloudOptions)
    return bool(cloud.template_location or options.view_as(TestOptions).dry_run)


if __name__ == "__main__":
    sys.exit(main())
