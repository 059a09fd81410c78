"""The run of a job: whatever ends it becomes a sentence and an exit status."""

import sys
from collections.abc import Callable

from beam_jobs.errors import failure_in
from beam_jobs.prepare.staging import Staging
from beam_jobs.running.stop_signals import StopSignals
from beam_jobs.running.thread_failures import ThreadFailures
from beam_jobs.storage import files


def run_job(
    job: Callable[[], None], stop: StopSignals, *, local: bool, kept: Staging | None = None
) -> int:
    """Runs a job to its end, and prints what ends it early.

    Args:
      job: makes a pipeline and waits for it.
      stop: the signals that may stop it.
      local: whether it ends with this process.
      kept: the staging directory, if the next launch goes on with what lies there.

    Returns:
      0, 1 for a failure that has a sentence, 130 or 143 after a stop signal.

    Raises:
      Exception: what ended the job, if there is no sentence for it.
    """
    with ThreadFailures() as failures:
        try:
            job()
            failures.show()
        except (Exception, KeyboardInterrupt) as error:
            if stop.received:
                print(stop.sentence(local=local, resumes=kept is not None), file=sys.stderr)
                return stop.exit_status
            if (message := failure_in(error, failures.messages)) is None:
                failures.show()
                raise
            _print_failure(message, kept)
            return 1
    return 0


def _print_failure(message: str, kept: Staging | None) -> None:
    print(f"error: {message}", file=sys.stderr)
    if kept and files.exists(kept.inputs):
        print(
            f"finished work is kept in {kept.directory}: the same command reuses it; "
            "delete that folder to give it up",
            file=sys.stderr,
        )
