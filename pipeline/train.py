"""Trains a task on a dataset directory: `python -m pipeline.train DATA_DIR --run-dir RUN`."""

import argparse
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from pipeline.distribution.stop_request import (
    STOPPED,
    StopRequest,
    hold_sigterm,
    release_sigterm,
)
from pipeline.keras_backend import require_tensorflow
from schemas.program import begin_program, run_program

if __name__ == "__main__":
    # Until `main` heeds signals: the imports below take seconds, and start threads.
    hold_sigterm()
    begin_program((signal.SIGINT,))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported
    require_tensorflow("pipeline.train")  # before Keras is imported, which may fail

import tensorflow as tf
from tqdm import tqdm

from pipeline.distribution.cluster import Cluster
from pipeline.distribution.peers import unanswered
from pipeline.distribution.server import serve, shut_down
from pipeline.distribution.strategies import (
    MULTI_WORKER_TASKS,
    is_chief,
    make_strategy,
    parameter_server_cluster,
)
from pipeline.input.services import is_lost_service
from pipeline.records.file_systems import load_file_system
from pipeline.records.info import load_info
from pipeline.records.read_failure import read_failure_in
from pipeline.tasks.base import TaskError, load_task
from pipeline.train_arguments import (
    RUN,
    TRAINING,
    asked_task,
    configured,
    make_parser,
    split_model_options,
)
from pipeline.training.checkpoints import trained_version
from pipeline.training.disk_full import disk_full_reason
from pipeline.training.ledger import Ledger, process_start, time_sentence
from pipeline.training.loop import (
    Figures,
    RunCheckpoints,
    RunOptions,
    resume,
    run,
)
from pipeline.training.non_finite import NonFiniteError
from pipeline.training.progress import Progress
from pipeline.training.prometheus import PrometheusServer
from pipeline.training.run_directory import CHECKPOINTS, RunFolder
from pipeline.training.run_files import StoreError, store_errors
from pipeline.training.run_lock import RunFolderInUseError
from pipeline.training.trained_variables import trained_sentence
from pipeline.training.trainer import Trainer
from pipeline.warm_start import init_from

FAILED = 1
_CLUSTER_STRATEGIES = ("auto", "multi_worker", "parameter_server")


def main(
    argv: Sequence[str] | None = None, *, began: float | None = None, may_exit: bool = False
) -> int:
    """Runs the command.

    Args:
      argv: arguments; None for those of this process.
      began: when the run's time began, in seconds since 1970; None for now.
      may_exit: whether this process may be ended where it waits, as in `StopRequest`.

    Returns:
      0 at the end of the run, `STOPPED` where it was told to stop or another process trains in the
      run folder, or where another process that it needs was lost or does not answer; `FAILED`
      where its loss is not finite, a record can't be read or the disk is full.
    """
    ledger = Ledger(began=began)
    tf.get_logger().setLevel("ERROR")  # what it warns of, sentences of this command tell
    arguments, model_options = split_model_options(sys.argv[1:] if argv is None else argv)
    parser = make_parser(task_help=asked_task(arguments))
    args = parser.parse(arguments)
    try:
        cluster = parameter_server_cluster(args.strategy)
        if cluster and cluster.kind != "chief":
            release_sigterm()  # which ends it at once
            load_file_system(args.run_dir)
            serve(cluster, args.run_dir)
            return 0
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    missing = partial(_missing_servers, cluster) if cluster else lambda: ""
    with StopRequest(may_exit=may_exit, missing=missing) as stop:
        try:
            status = _train(parser, args, model_options, stop, ledger)
        # Aborted where a server has been started again before this process noticed.
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            lost = _lost_peers(args.strategy, error)
            if lost is None:
                raise
            _warn(
                f"{lost}: start it again if it does not run, and the same command goes on from the "
                "last checkpoint"
            )
            return STOPPED
        except tf.errors.NotFoundError as error:
            if not is_lost_service(error):
                raise
            _warn(
                "a data service was lost and started again, and no longer knows this run: the same "
                "command goes on from the last checkpoint"
            )
            return STOPPED
    if cluster and not status:
        shut_down(cluster, args.run_dir)
    return status


def _train(
    parser: argparse.ArgumentParser,
    args: argparse.Namespace,
    model_options: Mapping[str, str],
    stop: StopRequest,
    ledger: Ledger,
) -> int:
    try:  # what goes wrong here the user can put right; later, it is not so
        strategy = make_strategy(args.strategy)
        trainer = Trainer(
            load_task(args.task, model_options),
            strategy,
            load_info(args.data_dir, version=_version(args)),
            TRAINING.make(args),
            lambda config: configured(config, args),
            services=args.services,
        )
        run_options = RUN.make(args)
        folder = _open_run_folder(args.run_dir, trainer)
    except TimeoutError as error:
        _warn(f"{error}: start it, or check its address; the same command goes on then")
        return STOPPED
    except (ValueError, FileNotFoundError, StoreError) as error:
        parser.error(str(error))
    if folder is None:
        return STOPPED
    with folder, ExitStack() as opened:
        try:
            if args.prometheus_port and folder.is_chief:
                metrics = opened.enter_context(PrometheusServer(args.prometheus_port, ledger))
            else:
                metrics = None
            warn = _warn if folder.is_chief else lambda _: None
            with store_errors(args.run_dir):
                checkpoints = resume(trainer, folder, run_options, warn=warn)
            began_with = init_from(
                trainer,
                folder,
                checkpoints.newest,
                args.init_from,
                without=args.init_without,
                warn=warn,
            )
        except (ValueError, FileNotFoundError, StoreError) as error:
            parser.error(str(error))
        if trainer.options.train_only:
            warn(trained_sentence(trainer.model))
        first_step = trainer.step
        data = {
            "data_dir": trainer.info.data_dir,
            "version": trainer.info.version,
            "init_from": began_with,
        }
        asked = {**vars(args), **data, "model": model_options}
        try:
            trainer.check_task(run_options.evaluation_split)
            folder.write_options(asked)
            ended = _run_with_bar(
                trainer,
                folder,
                run_options,
                checkpoints,
                stop,
                ledger,
                metrics,
                quiet=args.quiet,
            )
            folder.plot()
            if trainer.step > first_step:
                folder.log_time(trainer.step, ledger, ended=ended)
        except TaskError as error:  # all other errors of its code come with their traceback
            parser.error(str(error))
        except RunFolderInUseError as error:
            folder.abandon()
            _warn(str(error))
            return STOPPED
        except StoreError as error:
            folder.abandon()
            _warn(f"{error}; then run the same command again to go on")
            return FAILED
        except (NonFiniteError, OSError, tf.errors.OpError) as error:
            advice = _advice(error, folder.path, checkpoints.newest.newest_step)
            if advice is None:
                raise
            if isinstance(error, NonFiniteError):
                folder.log(trainer.step, {"loss": math.nan})  # for whoever reads the log alone
            _warn(advice)
            return FAILED
    if trainer.step > first_step and folder.is_chief and not args.quiet:
        print(time_sentence(ledger.read()))
    if not ended:
        _warn(f"stopped at step {trainer.step:,}: the same command goes on")
        return STOPPED
    sentence = _why_no_more_steps(trainer, run_options, first_step)
    if sentence and folder.is_chief:
        _warn(sentence)
    return 0


def _missing_servers(cluster: Cluster) -> str:
    """Lists processes that do not answer and without which no step of the chief ends."""
    workers = cluster.peers("worker")
    # The others do the work of a worker that was lost, but not that of a parameter server.
    if all(unanswered({address: name}) for address, name in workers.items()):
        return unanswered(workers)
    return unanswered(cluster.peers("ps"))


def _lost_peers(strategy: str, error: tf.errors.OpError) -> str | None:
    """Tells which other process of the cluster was lost; returns None for other errors."""
    cluster = Cluster.from_environment() if strategy in _CLUSTER_STRATEGIES else None
    if cluster is None:
        return None
    if "ps" in cluster.tasks:
        missing = unanswered(cluster.peers("ps"))
        return f"a parameter server was lost ({missing or error.message.splitlines()[0]})"
    missing = unanswered(cluster.peers(*MULTI_WORKER_TASKS))
    # One that was started again answers already.
    is_lost = missing or "Collective ops is aborted" in error.message
    return f"another worker was lost ({missing or 'it runs again'})" if is_lost else None


def _version(args: argparse.Namespace) -> int | None:
    """Version of the dataset to train on: a run that goes on stays with its own."""
    if args.version is not None or args.other_data:
        return args.version
    load_file_system(args.run_dir)
    return trained_version(os.path.join(args.run_dir, CHECKPOINTS))


def _open_run_folder(run_dir: str, trainer: Trainer) -> RunFolder | None:
    """Opens the run folder; returns None, on every worker, where another process trains in it."""
    folder = None
    try:
        folder = RunFolder(run_dir, is_chief=is_chief(trainer.strategy))
    except RunFolderInUseError as error:
        _warn(str(error))
    # A chief that ended alone would let the workers wait for it until they fail.
    return None if trainer.any_worker(folder is None) else folder


def _run_with_bar(
    trainer: Trainer,
    folder: RunFolder,
    options: RunOptions,
    checkpoints: RunCheckpoints,
    stop: StopRequest,
    ledger: Ledger,
    metrics: PrometheusServer | None,
    *,
    quiet: bool,
) -> bool:
    """Calls `run`, and shows a progress bar, the evaluations and the metrics on the chief."""

    def show(progress: Progress, figures: Figures, evaluation: Figures | None) -> None:
        if metrics:
            metrics.step = progress.step
        if not bar.disable:
            _show(bar, progress, figures, evaluation)

    with tqdm(
        total=trainer.options.steps,
        unit=" steps",
        dynamic_ncols=True,
        disable=quiet or not folder.is_chief,
    ) as bar:
        return run(
            trainer,
            folder,
            options,
            checkpoints,
            stop=stop,
            ledger=ledger,
            show=show,
        )


def _why_no_more_steps(trainer: Trainer, options: RunOptions, first_step: int) -> str | None:
    """Explains why a run took no steps or not all of them; returns None if it took all."""
    if trainer.step < trainer.options.steps:
        return (
            f"the run ended at step {trainer.step:,}, as no evaluation within --patience "
            f"{options.patience} had a lower loss: to go on, choose a higher patience"
        )
    if trainer.step == first_step:
        return f"the run was at its last step, {first_step:,}: to go on, choose more steps"
    return None


def _advice(error: Exception, folder: str, newest_step: int | None) -> str | None:
    """Advises on a loss that is not finite, a damaged record or a full disk; else None."""
    if isinstance(error, tf.errors.OpError) and (sentence := read_failure_in(error)):
        return sentence
    if newest_step is None:
        kept = "there is no checkpoint yet"
    else:
        kept = f"the newest checkpoint, of step {newest_step:,}, is left as it is"
    if isinstance(error, NonFiniteError):
        return (
            f"{error}: the run ends, and {kept}. Look for a learning rate that is too high, and "
            "for labels that the task's loss can't take"
        )
    reason = disk_full_reason(error)
    return reason and (
        f"the disk of run folder {folder} is full ({reason}), and {kept}: make room, and run the "
        "same command again to go on"
    )


def _warn(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _show(bar: tqdm, progress: Progress, figures: Figures, evaluation: Figures | None) -> None:
    if not bar.n:  # the run may go on from a checkpoint
        bar.initial = bar.n = bar.last_print_n = progress.step - len(progress.losses)
    bar.set_postfix_str(
        f"loss {figures['loss']:.3f}, {figures['images_per_s']:,.0f} images/s, "
        f"{figures['input_wait']:.0%} waiting for input",
        refresh=False,
    )
    bar.update(progress.step - bar.n)
    if evaluation:
        named = [name for name in evaluation if "/" not in name]
        text = ", ".join(f"{name} {_with_parts(name, evaluation)}" for name in named)
        bar.write(f"step {progress.step:,}: validation {text}")


def _with_parts(name: str, evaluation: Figures) -> str:
    """A figure, and that of the rare half of the layouts with its layouts and records."""
    half = f"{name}/rare_half"
    text = f"{evaluation[name]:.3f}"
    if name == "loss" and not math.isfinite(evaluation[name]):
        return f"{text} (not counted: it is not a finite number)"
    if half not in evaluation or name == "loss":
        return text
    layouts, records = (int(evaluation[f"{half}_{unit}"]) for unit in ("layouts", "records"))
    return (
        f"{text} (rare half {evaluation[half]:.3f}: {layouts:,} layout{'s' * (layouts != 1)}, "
        f"{records:,} record{'s' * (records != 1)})"
    )


if __name__ == "__main__":
    run_program(lambda: main(began=process_start(), may_exit=True))
