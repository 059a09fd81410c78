"""Trains a task on a dataset directory: `python -m pipeline.train DATA_DIR --run-dir RUN`."""

import argparse
import dataclasses
import inspect
import math
import os
import re
import sys
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.distribution.stop_request import StopRequest, hold_sigterm, release_sigterm

if __name__ == "__main__":
    hold_sigterm()  # until `main` heeds it: the imports below take seconds, and start threads

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf
from tqdm import tqdm

from pipeline.augmentation.presets import AUGMENTATIONS
from pipeline.config import InputConfig
from pipeline.distribution.server import serve, shut_down
from pipeline.distribution.strategies import (
    STRATEGIES,
    is_chief,
    make_strategy,
    parameter_server_cluster,
)
from pipeline.records.info import add_data_dir, load_info
from pipeline.records.reader import read_failure_in
from pipeline.tasks.base import load_task
from pipeline.training.disk_full import disk_full_reason
from pipeline.training.loop import STOPPED, Figures, RunOptions, resume, run
from pipeline.training.non_finite import NonFiniteError
from pipeline.training.options import TrainOptions
from pipeline.training.run_directory import RunFolder
from pipeline.training.run_lock import RunFolderInUseError
from pipeline.training.trainer import Progress, Trainer

FAILED = 1
_MODEL_PREFIX = "--model."
_TASK = "pipeline.tasks.layout_classifier:LayoutClassifier"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 at the end of the run, `STOPPED` where it was told to stop or another process trains in the
      run folder, `FAILED` where its loss is not finite, a record can't be read or the disk is full.
    """
    tf.get_logger().setLevel("ERROR")  # what it warns of, sentences of this command tell
    parser = make_parser()
    arguments, model_options = split_model_options(sys.argv[1:] if argv is None else argv)
    known = parser.parse_args(arguments)
    try:
        cluster = parameter_server_cluster(known.strategy)
        if cluster and cluster.kind != "chief":
            release_sigterm()  # which ends it at once
            serve(cluster, known.run_dir)
            return 0
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    with StopRequest() as stop:
        try:
            status = _train(parser, known, model_options, stop)
        except tf.errors.UnavailableError as error:
            if not cluster:
                raise
            _warn(
                f"a parameter server can't be reached ({error.message.splitlines()[0]}): start it "
                "again, and the same command goes on from the last checkpoint"
            )
            return STOPPED
    if cluster and not status:
        shut_down(cluster, known.run_dir)
    return status


def _train(
    parser: argparse.ArgumentParser,
    known: argparse.Namespace,
    model_options: Mapping[str, str],
    stop: StopRequest,
) -> int:
    try:  # what goes wrong here is for the user to mend; later, it is not
        strategy = make_strategy(known.strategy)
        trainer = Trainer(
            load_task(known.task, model_options),
            strategy,
            load_info(known.data_dir),
            _from_arguments(TrainOptions, known),
            lambda config: configured(config, known),
        )
        run_options = _from_arguments(RunOptions, known)
        in_use = None
        try:
            folder = RunFolder(known.run_dir, is_chief=is_chief(strategy))
        except RunFolderInUseError as error:
            in_use = error
        if trainer.any_worker(in_use is not None):  # workers that waited for the chief would fail
            if in_use:
                _warn(str(in_use))
            return STOPPED
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    with folder:
        try:
            checkpoints = resume(
                trainer, folder, run_options, warn=_warn if folder.is_chief else lambda _: None
            )
        except ValueError as error:
            parser.error(str(error))
        asked = {**vars(known), "data_dir": trainer.info.data_dir, "model": model_options}
        try:
            folder.write_options(asked)
            with tqdm(
                total=trainer.options.steps,
                unit=" steps",
                dynamic_ncols=True,
                disable=known.quiet or not folder.is_chief,
            ) as bar:
                first_step = trainer.step
                ended = run(
                    trainer,
                    folder,
                    run_options,
                    checkpoints,
                    stop=stop,
                    show=(lambda *_: None) if bar.disable else (lambda *what: _show(bar, *what)),
                )
            folder.plot()
        except (NonFiniteError, OSError, tf.errors.OpError) as error:
            advice = _advice(error, folder.path, checkpoints.newest.newest_step)
            if advice is None:
                raise
            _warn(advice)
            return FAILED
    if not ended:
        _warn(f"stopped at step {trainer.step:,}: the same command goes on")
        return STOPPED
    sentence = _why_no_more_steps(trainer, run_options, first_step)
    if sentence and folder.is_chief:
        _warn(sentence)
    return 0


def _why_no_more_steps(trainer: Trainer, options: RunOptions, first_step: int) -> str | None:
    """Why a run has ended before its last step, or without taking any; None where it has not."""
    if trainer.step < trainer.options.steps:
        return (
            f"the run ended at step {trainer.step:,}, as no evaluation within --patience "
            f"{options.patience} had a lower loss: to go on, choose a higher patience"
        )
    if trainer.step == first_step:
        return f"the run was at its last step, {first_step:,}: to go on, choose more steps"
    return None


def _advice(error: Exception, folder: str, newest_step: int | None) -> str | None:
    """What to do about a loss that is not finite, a damaged record or a full disk; else None."""
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


def make_parser() -> argparse.ArgumentParser:
    """The command's options; those of the dataclasses are read off their fields and docstrings."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.train",
        allow_abbrev=False,
        description=__doc__,
        epilog=f"Options of the task are given as {_MODEL_PREFIX}NAME VALUE. On SIGTERM or "
        f"Ctrl-C the run writes a checkpoint and exits with status {STOPPED}; the same command "
        "goes on.",
    )
    add_data_dir(parser)
    parser.add_argument("--run-dir", required=True, help="where checkpoints and logs go")
    parser.add_argument(
        "--task",
        default=_TASK,
        help="package.module:name of what is trained (default: %(default)s)",
    )
    parser.add_argument(
        "--strategy", choices=STRATEGIES, default="auto", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="no progress bar, and no line of an evaluation"
    )
    balance = parser.add_argument_group("balance")
    balance.add_argument(
        "--balance-alpha",
        type=float,
        metavar="ALPHA",
        help="0 (every layout alike) to 1 (natural shares) (default: that of the task)",
    )
    balance.add_argument(
        "--balance-repeat-cap",
        type=float,
        metavar="N",
        help="most times a record comes in an epoch (default: that of the task)",
    )
    balance.add_argument(
        "--balance-by", metavar="LABEL", help="category (default: that of the task)"
    )
    balance.add_argument(
        "--sample-weights", action="store_true", help="weigh examples so that the balance is undone"
    )
    inputs = parser.add_argument_group("input")
    inputs.add_argument(
        "--augment", choices=AUGMENTATIONS, help="augmentations (default: those of the task)"
    )
    inputs.add_argument(
        "--placement",
        choices=("host", "device"),
        help="augment in the input pipeline, or in the training step (default: that of the task)",
    )
    inputs.add_argument(
        "--image-dtype",
        choices=("float32", "uint8"),
        help="uint8 sends a quarter of the bytes to the devices, which normalise "
        "(default: that of the task)",
    )
    _add_fields(parser.add_argument_group("training"), TrainOptions)
    _add_fields(parser.add_argument_group("run"), RunOptions)
    return parser


def _add_fields(group: Any, options: Any) -> None:
    # Python 3.13 takes the common indentation off docstrings, older ones do not.
    text = inspect.cleandoc(options.__doc__)
    helps = dict(re.findall(r"^ {2}(\w+): (.*(?:\n {4}.*)*)", text, re.MULTILINE))
    types = typing.get_type_hints(options)
    for field in dataclasses.fields(options):
        flag = "--" + field.name.replace("_", "-")
        text = " ".join(helps[field.name].split())
        arguments = typing.get_args(types[field.name])
        if types[field.name] is bool:
            group.add_argument(flag, action="store_true", help=text)
            continue
        if typing.get_origin(types[field.name]) is typing.Literal:
            kind: dict[str, Any] = {"choices": arguments}
        else:
            value = arguments[0] if arguments else types[field.name]
            kind = {"type": value, "metavar": "NAME" if value is str else "N"}
        default = "" if field.default is None else " (default: %(default)s)"
        group.add_argument(flag, default=field.default, help=text + default, **kind)


def configured(config: InputConfig, known: argparse.Namespace) -> InputConfig:
    """What a task wants to see, but for what the command's options say."""

    def given(**options: Any) -> dict[str, Any]:
        return {name: value for name, value in options.items() if value is not None}

    balance = given(
        alpha=known.balance_alpha, repeat_cap=known.balance_repeat_cap, by=known.balance_by
    )
    placement = known.placement or config.placement
    features = config.features
    if features and placement == "device":
        features = tuple(dict.fromkeys((*features, "seed")))
    return dataclasses.replace(
        config,
        **given(dtype=known.image_dtype),
        features=features,
        placement=placement,
        augmentations=AUGMENTATIONS[known.augment] if known.augment else config.augmentations,
        balance=dataclasses.replace(config.balance, **balance),
        sample_weights=known.sample_weights or config.sample_weights,
    )


def _from_arguments(options: Any, known: argparse.Namespace) -> Any:
    names = [field.name for field in dataclasses.fields(options)]
    return options(**{name: getattr(known, name) for name in names})


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
    sys.exit(main())
