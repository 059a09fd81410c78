"""Trains a task on a dataset directory: `python -m pipeline.train DATA_DIR --run-dir RUN`."""

import argparse
import contextlib
import io
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from typing import Any, Literal

from pipeline.distribution.stop_request import StopRequest, hold_sigterm, release_sigterm
from schemas.program import leave_at_stop_signals, run_program

if __name__ == "__main__":
    # Until `main` heeds them: the imports below take seconds, and start threads.
    hold_sigterm()
    leave_at_stop_signals((signal.SIGINT,))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf
from tqdm import tqdm

from pipeline.arguments import BALANCE, add_dataset
from pipeline.augmentation.presets import AUGMENTATIONS
from pipeline.config import InputConfig
from pipeline.distribution.server import serve, shut_down
from pipeline.distribution.strategies import (
    STRATEGIES,
    is_chief,
    make_strategy,
    parameter_server_cluster,
)
from pipeline.records.file_systems import load_file_system
from pipeline.records.info import load_info
from pipeline.records.reader import read_failure_in
from pipeline.tasks.base import load_task, task_options
from pipeline.training.checkpoints import trained_version
from pipeline.training.disk_full import disk_full_reason
from pipeline.training.ledger import Ledger, process_start, time_sentence
from pipeline.training.loop import (
    STOPPED,
    Figures,
    RunCheckpoints,
    RunOptions,
    check_evaluation_split,
    resume,
    run,
)
from pipeline.training.non_finite import NonFiniteError
from pipeline.training.options import TrainOptions
from pipeline.training.prometheus import PrometheusServer, port_number
from pipeline.training.run_directory import CHECKPOINTS, RunFolder
from pipeline.training.run_files import StoreError, store_errors
from pipeline.training.run_lock import RunFolderInUseError
from pipeline.training.trainer import Progress, Trainer
from pipeline.warm_start import init_from
from schemas.command_line import CommandParser, Flag, Options

FAILED = 1
_MODEL_PREFIX = "--model."
_TASK = "pipeline.tasks.layout_classifier:LayoutClassifier"
_TASKS_OWN = "that of the task"
_INPUT = Options(
    InputConfig,
    sample_weights=Flag(help="weigh examples so that the balance is undone"),
    placement=Flag(help="augment in the input pipeline, or in the training step"),
    dtype=Flag(
        name="image-dtype",
        help="uint8 sends a quarter of the bytes to the devices, which normalize",
    ),
)
_TRAINING = Options(
    TrainOptions,
    steps=Flag(metavar="STEPS"),
    global_batch_size=Flag(metavar="RECORDS"),
    learning_rate=Flag(metavar="RATE"),
    learning_rate_batch=Flag(metavar="RECORDS"),
    warmup_steps=Flag(metavar="STEPS"),
    weight_decay=Flag(metavar="RATE"),
    clip_norm=Flag(metavar="NORM"),
    accumulate=Flag(metavar="PARTS"),
    seed=Flag(metavar="SEED"),
    steps_per_call=Flag(metavar="STEPS"),
)
_RUN = Options(
    RunOptions,
    checkpoint_every=Flag(metavar="STEPS"),
    keep=Flag(metavar="CHECKPOINTS"),
    evaluate_every=Flag(metavar="STEPS"),
    evaluation_split=Flag(metavar="SPLIT"),
    patience=Flag(metavar="EVALUATIONS"),
)


def main(argv: Sequence[str] | None = None, *, began: float | None = None) -> int:
    """Runs the command.

    Args:
      argv: arguments; None for those of this process.
      began: when the run's time began, in seconds since 1970; None for now.

    Returns:
      0 at the end of the run, `STOPPED` where it was told to stop or another process trains in the
      run folder, `FAILED` where its loss is not finite, a record can't be read or the disk is full.
    """
    ledger = Ledger(began=began)
    tf.get_logger().setLevel("ERROR")  # what it warns of, sentences of this command tell
    arguments, model_options = split_model_options(sys.argv[1:] if argv is None else argv)
    parser = make_parser(task_help=_asked_task(arguments))
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
    with StopRequest() as stop:
        try:
            status = _train(parser, args, model_options, stop, ledger)
        except tf.errors.UnavailableError as error:
            if not cluster:
                raise
            _warn(
                f"a parameter server can't be reached ({error.message.splitlines()[0]}): start it "
                "again, and the same command goes on from the last checkpoint"
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
            _TRAINING.make(args),
            lambda config: configured(config, args),
        )
        run_options = _RUN.make(args)
        folder = _open_run_folder(args.run_dir, trainer)
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
            began_with = init_from(trainer, folder, checkpoints.newest, args.init_from, warn=warn)
        except (ValueError, FileNotFoundError, StoreError) as error:
            parser.error(str(error))
        first_step = trainer.step
        data = {
            "data_dir": trainer.info.data_dir,
            "version": trainer.info.version,
            "init_from": began_with,
        }
        asked = {**vars(args), **data, "model": model_options}
        try:
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


def make_parser(*, task_help: str | None = None) -> CommandParser:
    """Makes the command's parser.

    Args:
      task_help: the task whose options the help lists, None to leave them out.
    """
    parser = CommandParser(
        "pipeline.train",
        "[DATA_DIR] --run-dir DIR",
        "Trains a task on a dataset directory.",
        epilog=f"Options of the task are given as {_MODEL_PREFIX}NAME VALUE; --help with --task "
        "lists those of that task. On SIGTERM or Ctrl-C the run writes a checkpoint and exits with "
        f"status {STOPPED}; the same command goes on.",
    )
    add_dataset(parser, version_default="that of the run, or the newest")
    parser.add_argument(
        "--run-dir", required=True, metavar="DIR", help="folder of checkpoints and logs"
    )
    parser.add_argument(
        "--init-from",
        metavar="RUN_OR_MODEL",
        help="run folder or exported model whose weights a new run begins with",
    )
    parser.add_argument(
        "--task",
        default=_TASK,
        metavar="MODULE:NAME",
        help="dataclass of what is trained (default: %(default)s)",
    )
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="auto",
        metavar="NAME",
        help=f"one of {', '.join(STRATEGIES)}; auto takes all GPUs, the cluster in "
        "TF_CONFIG, or the TPU that TPU_NAME names (default: %(default)s)",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="no progress bar, and no line of an evaluation"
    )
    balance = parser.add_argument_group("balance")
    BALANCE.add_to(balance, default=_TASKS_OWN)
    _INPUT.add_to(balance, "sample_weights")
    inputs = parser.add_argument_group("input")
    inputs.add_argument(
        "--augment", choices=AUGMENTATIONS, help=f"augmentations (default: {_TASKS_OWN})"
    )
    _INPUT.add_to(inputs, "placement", "dtype", default=_TASKS_OWN)
    _TRAINING.add_to(parser.add_argument_group("training"))
    run_group = parser.add_argument_group("run")
    _RUN.add_to(run_group)
    run_group.add_argument(
        "--prometheus-port",
        type=_port,
        metavar="PORT",
        help="serve metrics for Prometheus on this port of the chief (default: none)",
    )
    if task_help:
        group = parser.add_argument_group(f"options of {task_help}")
        try:
            task_options(task_help).add_to(group)
        except ValueError as error:
            group.description = str(error)
    return parser


def _asked_task(arguments: Sequence[str]) -> str | None:
    """The task whose options are to be listed, None where no help is asked for.

    Otherwise the task is not imported before its strategy exists: `MultiWorkerMirroredStrategy`
    can't be made once a module has run an operation.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--task", default=_TASK)
    args, _ = parser.parse_known_args(arguments)
    return args.task if args.help else None


def option_types(task: str) -> dict[str, Any]:
    """Returns types by name of the options that shape what a run learns, such as "model.width".

    Raises:
      ValueError: there is no such task.
    """
    inputs = _INPUT.types()
    return {
        **_TRAINING.types(),
        **BALANCE.types(),
        **{name: inputs[name] for name in ("sample_weights", "placement", "image_dtype")},
        "augment": Literal[tuple(AUGMENTATIONS)],
        **task_options(task).types(),
    }


def check_options(arguments: Sequence[str]) -> dict[str, Any]:
    """Checks options as far as no strategy and no run folder are needed.

    Returns:
      Values by name; those of the task are named "model.width", and `info` is the dataset.

    Raises:
      ValueError: an option, or what it names, is wrong.
      FileNotFoundError: there is no dataset, or no such version.
    """
    others, model_options = split_model_options(arguments)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = make_parser().parse(others)
    except SystemExit:
        raise ValueError(said.getvalue().partition("error: ")[2].strip()) from None
    info = load_info(args.data_dir, version=args.version)
    task = load_task(args.task, model_options)
    configured(task.inputs(info), args)
    _TRAINING.make(args)
    run_options = _RUN.make(args)
    check_evaluation_split(info, run_options)
    model: Any = task  # a dataclass, which no protocol can say
    of_task = {f"model.{each.name}": getattr(task, each.name) for each in fields(model)}
    return {**vars(args), **of_task, "info": info}


def configured(config: InputConfig, args: argparse.Namespace) -> InputConfig:
    """Changes what a task wants to see where the command's options say otherwise."""
    features = config.features
    if features and (args.placement or config.placement) == "device":
        features = config.with_features("seed").features
    changed: InputConfig = _INPUT.replace(
        config,
        args,
        features=features,
        augmentations=AUGMENTATIONS[args.augment] if args.augment else config.augmentations,
        balance=BALANCE.replace(config.balance, args),
    )
    return changed


def split_model_options(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """All other arguments, and `--model.width 64` or `--model.width=64` as {"width": "64"}."""
    others: list[str] = []
    found: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith(_MODEL_PREFIX):
            others.append(argument)
            continue
        flag, separator, value = argument.partition("=")
        name = flag.removeprefix(_MODEL_PREFIX).replace("-", "_")
        found[name] = value if separator else next(rest, "")
    return others, found


def _port(text: str) -> int:
    try:
        return port_number(text)
    except ValueError as error:  # argparse drops the sentence of a ValueError
        raise argparse.ArgumentTypeError(str(error)) from error


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
    run_program(lambda: main(began=process_start()))
