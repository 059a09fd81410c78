"""Arguments of `pipeline.train`, and the options they stand for."""

import argparse
import contextlib
import io
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal

import tensorflow as tf

from pipeline.arguments import BALANCE, BUCKETS, add_dataset
from pipeline.augmentation.presets import AUGMENTATIONS
from pipeline.config import InputConfig
from pipeline.distribution.stop_request import STOPPED
from pipeline.distribution.strategies import STRATEGIES
from pipeline.records.info import load_info
from pipeline.tasks.base import check_inputs, load_task, task_options
from pipeline.training.loop import RunOptions, check_evaluation_split
from pipeline.training.options import TrainOptions
from pipeline.training.prometheus import port_number
from pipeline.training.trainer import Trainer
from schemas.command_line import CommandParser, Flag, Options

_MODEL_PREFIX = "--model."
_TASK = "pipeline.tasks.layout_classifier:LayoutClassifier"
_TASKS_OWN = "that of the task"
_INPUT = Options(
    InputConfig,
    buckets=BUCKETS,
    sample_weights=Flag(help="weigh examples so that the balance is undone"),
    placement=Flag(help="augment in the input pipeline, or in the training step"),
    dtype=Flag(
        name="image-dtype",
        help="uint8 sends a quarter of the bytes to the devices, which normalize",
    ),
)
TRAINING = Options(
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
    backup_workers=Flag(metavar="WORKERS"),
    train_only=Flag(
        metavar="NAMES",
        default="all",
        help="layers that are trained, while all others stay as they are: head for the heads of "
        "the task, or names of layers, with commas",
    ),
)
RUN = Options(
    RunOptions,
    checkpoint_every=Flag(metavar="STEPS"),
    keep=Flag(metavar="CHECKPOINTS"),
    evaluate_every=Flag(metavar="STEPS"),
    evaluation_split=Flag(metavar="SPLIT"),
    patience=Flag(metavar="EVALUATIONS"),
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
        "--init-without",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="NAMES",
        help="what --init-from leaves out, so that it begins anew: head for the heads of the task, "
        "or names of layers, with commas",
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
    _INPUT.add_to(inputs, "buckets", "placement", "dtype", default=_TASKS_OWN)
    inputs.add_argument(
        "--services",
        type=_addresses,
        default=(),
        metavar="HOST:PORT,…",
        help="data services that make the training batches (default: this process makes them)",
    )
    TRAINING.add_to(parser.add_argument_group("training"))
    run_group = parser.add_argument_group("run")
    RUN.add_to(run_group)
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


def asked_task(arguments: Sequence[str]) -> str | None:
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
    training = TRAINING.types()
    del training["train_only"]  # its commas would separate choices
    return {
        **training,
        **BALANCE.types(),
        "balance_alpha": float,  # not the phases, whose commas would separate choices
        **{name: inputs[name] for name in ("sample_weights", "placement", "image_dtype")},
        "augment": Literal[tuple(AUGMENTATIONS)],
        "buckets": int,
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
    check_inputs(task, configured(task.inputs(info), args))
    TRAINING.make(args)
    run_options = RUN.make(args)
    check_evaluation_split(info, run_options)
    model: Any = task  # a dataclass, which no protocol can say
    of_task = {f"model.{each.name}": getattr(task, each.name) for each in fields(model)}
    return {**vars(args), **of_task, "info": info}


def trace_task(arguments: Sequence[str]) -> None:
    """Makes a task's model and the graph of an evaluation, without a strategy or a run folder.

    Raises:
      ValueError: an option is wrong, or a method of the task returns something of another shape
        than it should.
    """
    others, model_options = split_model_options(arguments)
    args = make_parser().parse(others)
    trainer = Trainer(
        load_task(args.task, model_options),
        tf.distribute.get_strategy(),
        load_info(args.data_dir, version=args.version),
        TRAINING.make(args),
        lambda config: configured(config, args),
    )
    trainer.check_task(args.evaluation_split)


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


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _port(text: str) -> int:
    try:
        return port_number(text)
    except ValueError as error:  # argparse drops the sentence of a ValueError
        raise argparse.ArgumentTypeError(str(error)) from error
