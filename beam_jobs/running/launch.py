"""The launch of a job by a command: its runner, its progress bar, and what ends it early."""

import logging
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import DirectOptions

from beam_jobs.errors import failure_in
from beam_jobs.options import JobOptions
from beam_jobs.prepare.staging import Staging
from beam_jobs.running import progress
from beam_jobs.running.beam_start import dofn_specs_kept
from beam_jobs.running.engines import RunnerError
from beam_jobs.running.local_workers import LocalWorkers
from beam_jobs.running.runner import beam_options, choose_runner, is_local_runner
from beam_jobs.running.stop_signals import StopSignals
from beam_jobs.running.thread_failures import ThreadFailures, check_threads
from beam_jobs.storage import files
from schemas.command_line import CommandParser
from schemas.program import run_program

# For each worker, and besides, of Beam and gRPC in the launching process: 29 were seen for two
# workers, 83 for eight.
_THREADS = 8


def run_command(main: Callable[[], int]) -> NoReturn:
    """Runs the `main` of a command that launches jobs, in a program that does nothing else."""

    def run() -> int:
        try:
            return main()
        finally:
            LocalWorkers.close()

    LocalWorkers.may_fork = True
    run_program(run)


def until_stopped(command: Callable[[StopSignals], int]) -> int:
    """Runs a command that Ctrl-C and SIGTERM may stop.

    Returns:
      Its exit status; 130 or 143 if it was stopped before its job or after it.
    """
    with StopSignals() as stop:
        try:
            return command(stop)
        except KeyboardInterrupt:
            print(stop.sentence(local=True, resumes=False), file=sys.stderr)
            return stop.exit_status


class Launch:
    """A job as a command line asks for it.

    What its parser does not know are options of Beam; it ends the program where they are wrong.

    Attributes:
      args: the command's arguments.
      beam_options: Beam's options, which the files of this process are reached with, too.
      is_local: whether the job ends with this process.
    """

    def __init__(self, parser: CommandParser, argv: Sequence[str] | None) -> None:
        self.args, others = parser.parse_known_args(argv)
        self.is_local = is_local_runner(self.args.runner)
        logging.getLogger("apache_beam").setLevel(
            logging.CRITICAL if self.is_local else logging.INFO
        )
        if self.is_local:  # a job that fails ends with a sentence
            logging.getLogger("grpc").setLevel(logging.CRITICAL)
        try:
            self.beam_options = beam_options(others)
        except RunnerError as error:
            parser.error(str(error))
        FileSystems.set_options(self.beam_options)

    def choose_runner(self, options: JobOptions) -> None:
        """Chooses the runner of a job.

        Raises:
          RunnerError: its options can't work.
        """
        self._runner = choose_runner(
            self.args.runner, self.beam_options, self.args.workers, options.paths
        )

    def run(
        self,
        add: Callable[[beam.Pipeline], None],
        options: JobOptions,
        stop: StopSignals,
        *,
        kept: Staging | None = None,
        has_bar: bool = True,
        is_staged_only: bool = False,
    ) -> int:
        """Runs the job to its end, and prints what ends it early.

        Args:
          add: adds the job to a pipeline.
          options: the job's options.
          stop: the signals that may stop it.
          kept: the staging directory, if the next launch goes on with what lies there.
          has_bar: whether a local job has a progress bar, unless the user wants none.
          is_staged_only: whether Beam's options say that the job is not to be run now.

        Returns:
          0, 1 for a failure that has a sentence, 130 or 143 after a stop signal.

        Raises:
          Exception: what ended the job, if there is no sentence for it.
        """
        shown = self.is_local and has_bar and not self.args.quiet
        with ThreadFailures(LocalWorkers.close) as failures, dofn_specs_kept():
            try:
                if self.is_local:
                    check_threads(self._threads())
                pipeline = beam.Pipeline(runner=self._runner, options=self.beam_options)
                add(pipeline)
                with progress.shown(options, enabled=shown):
                    self._result = pipeline.run()
                    if not is_staged_only:
                        self._result.wait_until_finish()
                failures.show()
            except (Exception, KeyboardInterrupt) as error:
                if stop.received:
                    sentence = stop.sentence(local=self.is_local, resumes=kept is not None)
                    print(sentence, file=sys.stderr)
                    return stop.exit_status
                if (message := failure_in(error, failures.messages)) is None:
                    failures.show()
                    raise
                _print_failure(message, kept)
                return 1
        return 0

    def count(self, counter: str) -> int:
        """Returns what a counter of the job's steps has counted, once the job has ended."""
        metrics = self._result.metrics().query(MetricsFilter().with_name(counter))
        return sum(result.attempted for result in metrics["counters"])

    def _threads(self) -> int:
        """Returns how many threads a local job needs in this process at least."""
        workers = self.beam_options.view_as(DirectOptions).direct_num_workers
        return 0 if workers == 1 else _THREADS * (1 + workers)


def _print_failure(message: str, kept: Staging | None) -> None:
    print(f"error: {message}", file=sys.stderr)
    if kept and files.exists(kept.inputs):
        print(
            f"finished work is kept in {kept.directory}: the same command reuses it; "
            "delete that folder to give it up",
            file=sys.stderr,
        )
