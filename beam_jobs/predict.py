"""Predicts millions of receipts with an exported model: `python -m beam_jobs.predict --help`."""

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


from beam_jobs.arguments.predict import predict_options, predict_parser
from beam_jobs.errors import BuildError
from beam_jobs.models.model import INSTALL, has_tensorflow
from beam_jobs.predict_job import add_predict
from beam_jobs.prediction.options import PredictOptions
from beam_jobs.prediction.publish import check_predictions_output, read_predictions_manifest
from beam_jobs.prepare.staging import delete_staging, write_marker
from beam_jobs.running import report
from beam_jobs.running.launch import Launch, run_command, until_stopped
from beam_jobs.sources.folders import SKIPPED_SYSTEM_FILES
from beam_jobs.storage import files
from beam_jobs.writing.output import check_names, is_published
from beam_jobs.writing.output_lock import output_lock
from schemas.predictions import is_predictions_file


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 if the predictions are complete, 1 if the job failed, 130 or 143 if Ctrl-C or SIGTERM
      stopped it.
    """
    return until_stopped(lambda stop: _run(argv, stop))


def _run(argv: Sequence[str] | None, stop: StopSignals) -> int:
    parser = predict_parser()
    launch = Launch(parser, argv)
    args = launch.args
    with ExitStack() as stack:
        # The arguments, the model and the output: what is wrong with them is found before the job.
        try:
            options = predict_options(args)
            launch.choose_runner(options)
            if launch.is_local and not has_tensorflow():
                raise BuildError(INSTALL)
            if _begin(options, stack):
                _print_summary(options, args.output)
                print("published by an earlier run of the same command: --overwrite predicts again")
                return 0
        except (ValueError, BuildError) as error:
            parser.error(str(error))
        started_s = time.monotonic()
        if status := launch.run(
            partial(add_predict, options=options), options, stop, kept=options.staging
        ):
            return status
        inputs = _print_summary(options, args.output)
        print(report.describe_skipped(launch.count(SKIPPED_SYSTEM_FILES)), end="")
        elapsed_s = time.monotonic() - started_s
        print(f"  {elapsed_s:.0f} s, {inputs / elapsed_s:.1f} images/s")
        return 0


def _begin(options: PredictOptions, stack: ExitStack) -> bool:
    """Takes possession of the output directory until the stack is closed.

    Returns:
      Whether it holds these predictions already, published by a job that was killed afterwards.

    Raises:
      BuildError: nothing can be written there, or must not be.
    """
    check_names(options.staging, is_predictions_file)
    local = files.is_local(options.output)
    if local:
        stack.enter_context(output_lock(options.staging))
    if not options.overwrite and is_published(options):
        delete_staging(options.staging)
        return True
    check_predictions_output(options)
    if not local:
        write_marker(options.staging)
    return False


def _print_summary(options: PredictOptions, output: str) -> int:
    """Prints the numbers of finished predictions; returns that of their inputs."""
    manifest = read_predictions_manifest(options.output)
    print(report.predict_summary(manifest, output), end="")
    return manifest.inputs


if __name__ == "__main__":
    run_command(main)
