"""Trains a task on a dataset directory: `python -m pipeline.train DATA_DIR --run-dir RUN`."""

import argparse
import dataclasses
import os
import re
import sys
import typing
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import tensorflow as tf
from tqdm import tqdm

from pipeline.config import InputConfig
from pipeline.info import load_info
from pipeline.presets import AUGMENTATIONS
from pipeline.run import STOPPED, Figures, RunOptions, resume, run
from pipeline.run_folder import RunFolder
from pipeline.server import dismiss, serve
from pipeline.strategies import STRATEGIES, is_chief, make_strategy, parameter_server_cluster
from pipeline.task import load_task
from pipeline.train_options import TrainOptions
from pipeline.trainer import Progress, Trainer

_MODEL_PREFIX = "--model."
_TASK = "pipeline.layout_classifier:LayoutClassifier"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 0 at the end of the run, `STOPPED` where it was told to stop."""
    parser = make_parser()
    arguments, model_options = split_model_options(sys.argv[1:] if argv is None else argv)
    known = parser.parse_args(arguments)
    cluster = None
    try:
        try:  # what goes wrong here is for the user to mend; later, it is not
            cluster = parameter_server_cluster(known.strategy)
            if cluster and cluster.kind != "chief":
                serve(cluster, known.run_dir)
                return 0
            strategy = make_strategy(known.strategy)
            trainer = Trainer(
                load_task(known.task, model_options),
                strategy,
                load_info(known.data_dir),
                _from_arguments(TrainOptions, known),
                lambda config: configured(config, known),
            )
            run_options = _from_arguments(RunOptions, known)
            folder = RunFolder(known.run_dir, is_chief=is_chief(strategy))
            checkpoints = resume(trainer, folder, run_options)
            folder.write_options({**vars(known), "model": model_options})
        except (ValueError, FileNotFoundError) as error:
            parser.error(str(error))
        with tqdm(
            total=trainer.options.steps,
            unit=" steps",
            dynamic_ncols=True,
            disable=known.quiet or not folder.is_chief,
        ) as bar:
            ended = run(
                trainer, folder, run_options, checkpoints, show=lambda *what: _show(bar, *what)
            )
    except tf.errors.UnavailableError as error:
        if not cluster:
            raise
        print(
            f"a parameter server can't be reached ({error.message.splitlines()[0]}): start it "
            "again, and the same command goes on from the last checkpoint",
            file=sys.stderr,
        )
        return STOPPED
    folder.plot()
    if not ended:
        print(f"stopped at step {trainer.step:,}: the same command goes on", file=sys.stderr)
        return STOPPED
    if cluster:
        dismiss(cluster, known.run_dir)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command's options; those of the dataclasses are read off their fields and docstrings."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.train",
        allow_abbrev=False,
        description=__doc__,
        epilog=f"Options of the task are given as {_MODEL_PREFIX}NAME VALUE. On SIGTERM the run "
        f"writes a checkpoint and exits with status {STOPPED}; the same command goes on.",
    )
    parser.add_argument("data_dir", help="dataset directory")
    parser.add_argument("--run-dir", required=True, help="where checkpoints and logs go")
    parser.add_argument(
        "--task",
        default=_TASK,
        help="package.module:name of what is trained (default: %(default)s)",
    )
    parser.add_argument(
        "--strategy", choices=STRATEGIES, default="auto", help="(default: %(default)s)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    balance = parser.add_argument_group("balance")
    balance.add_argument(
        "--balance",
        type=float,
        metavar="T",
        help="temperature: 1 for natural shares to 0 for equal ones (default: that of the task)",
    )
    balance.add_argument(
        "--repeat-cap",
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
    helps = dict(re.findall(r"^ {6}(\w+): (.*(?:\n {8}.*)*)", options.__doc__, re.MULTILINE))
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

    balance = given(temperature=known.balance, repeat_cap=known.repeat_cap, by=known.balance_by)
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
    """A figure, and that of the rare half of the layouts."""
    rare = evaluation.get(f"{name}/rare_half")
    text = f"{evaluation[name]:.3f}"
    return text if rare is None or name == "loss" else f"{text} (rare half of layouts {rare:.3f})"


if __name__ == "__main__":
    sys.exit(main())
