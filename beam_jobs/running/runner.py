"""The choice of a runner, with options that avoid the traps of the local ones."""

import os
from collections.abc import Sequence
from contextlib import suppress

from apache_beam.options.pipeline_options import (
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    WorkerOptions,
    _BeamArgumentParser,
)
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners import create_runner
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.runner import PipelineRunner

from beam_jobs.running.beam_start import KeptOptions
from beam_jobs.running.engines import (
    RunnerError,
    is_flink,
    is_spark,
    set_worker_process,
    warn_of_local_files,
)
from beam_jobs.running.flink import set_flink_options
from beam_jobs.running.local_worker_handler import LocalWorkerEnvironment
from beam_jobs.running.local_workers import LocalWorkers
from beam_jobs.running.spark import set_spark_options
from beam_jobs.storage import files

_LOCAL = ("local", "directrunner", "switchingdirectrunner", "fnapirunner")


def beam_options(arguments: Sequence[str]) -> PipelineOptions:
    """Parses Beam's options from the arguments that are not options of the command.

    Raises:
      RunnerError: an argument is known to neither.
    """
    # PipelineOptions drops an argument that it does not know, with no more than a log line. So the
    # parsers of all its classes, which have no public interface, look at the arguments first.
    parser = _BeamArgumentParser(allow_abbrev=False)
    for options_class in PipelineOptions.__subclasses__():
        options_class._add_argparse_args(parser)
    _, stray = parser.parse_known_args(list(arguments))
    if stray:
        raise RunnerError(
            f"unknown argument {stray[0]}: see --help for the command's options; any other must "
            "be one of Beam's pipeline options"
        )
    return KeptOptions(list(arguments))


def is_local_runner(name: str) -> bool:
    """Returns whether a name, in any case, means the runner of this machine."""
    return name.lower() in _LOCAL or f"{name.lower()}runner" in _LOCAL


def choose_runner(
    name: str, options: PipelineOptions, workers: int | None, paths: Sequence[str] = ()
) -> PipelineRunner:
    """Returns the runner of a name, and sets options that are safe for it.

    Local names all mean Beam's FnApiRunner: DirectRunner would try to download another runner
    first. With several workers it runs processes; None is one per core.

    Args:
      name: local, or a name that Beam knows.
      options: the job's options, which are changed.
      workers: how many workers the user asked for; None for as many as there can be.
      paths: files and folders that the workers read and write, the output first.

    Raises:
      RunnerError: the options would lose data, or lack what the runner needs.
    """
    if workers is not None and workers < 1:
        raise RunnerError(f"--workers must be at least 1, got {workers}")
    if is_local_runner(name):
        return _local_runner(options, workers)
    options.view_as(StandardOptions).runner = name
    if name.lower() in ("dataflow", "dataflowrunner"):
        _check_dataflow(options, paths)
    if is_flink(name) or is_spark(name):
        if is_flink(name):
            set_flink_options(options, workers, output=paths[0] if paths else "")
        else:
            set_spark_options(options, workers)
        set_worker_process(options)
        warn_of_local_files(name, options, paths)
    return create_runner(name)


def _local_runner(options: PipelineOptions, workers: int | None) -> PipelineRunner:
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_threading":
        raise RunnerError(
            "--direct_running_mode=multi_threading loses records silently (a fault of Beam): "
            "leave it out, and set the number of processes with --workers"
        )
    if workers is None:
        workers = len(os.sched_getaffinity(0))
    direct.direct_num_workers = workers
    if workers == 1:
        return fn_runner.FnApiRunner()
    worker_options = options.view_as(WorkerOptions)
    worker_options.default_sdk_harness_log_level = (
        worker_options.default_sdk_harness_log_level or "CRITICAL"
    )
    # Now, as it may be forked before the job begins only. Where no process can start, the job tries
    # once more and says so.
    with suppress(OSError):
        LocalWorkers.server()
    # Worker processes get their options, such as those for S3, only from here.
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    return fn_runner.FnApiRunner(
        default_environment=LocalWorkerEnvironment(),
        provision_info=fn_runner.ExtendedProvisionInfo(
            beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
        ),
    )


def _check_dataflow(options: PipelineOptions, paths: Sequence[str]) -> None:
    cloud, setup = options.view_as(GoogleCloudOptions), options.view_as(SetupOptions)
    absent = [name for name in ("project", "region", "temp_location") if not getattr(cloud, name)]
    if absent:
        raise RunnerError(
            "DataflowRunner needs " + ", ".join(f"--{name}" for name in absent) + ": for example "
            "--project=my-project --region=europe-west4 --temp_location=gs://my-bucket/temp"
        )
    packaged = (
        setup.setup_file
        or setup.extra_packages
        or options.view_as(WorkerOptions).sdk_container_image
    )
    if not packaged:
        raise RunnerError(
            "Dataflow's workers need tillroll itself: pass --setup_file=./setup.py from a "
            "checkout, --extra_package=tillroll-….whl, or --sdk_container_image=… built from the "
            "Dockerfile in beam_jobs/"
        )
    if local := [path for path in paths if files.is_local(path)]:
        raise RunnerError(
            f"Dataflow's workers can't reach {', '.join(local)} on this machine: copy it to Cloud "
            "Storage, and name it as gs://…"
        )
