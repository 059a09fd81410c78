"""Searches for good options of training: `python -m pipeline.search DATA_DIR --search-dir DIR`."""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple, TypeVar

from schemas.program import begin_program, end_with_parent, run_program

if __name__ == "__main__":
    begin_program()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # of the trainers

import optuna

from pipeline.distribution.stop_request import STOPPED, StopRequest
from pipeline.searching.claims import ClaimOptions
from pipeline.searching.definition import Definition
from pipeline.searching.journal import JournalError
from pipeline.searching.outcome import Ending, OutageError, Outcome, TrialsFailError
from pipeline.searching.report import ranked, summary, write_report
from pipeline.searching.space import (
    Space,
    Value,
    contains,
    flag_of,
    parse_space,
    samples_of,
    to_flags,
)
from pipeline.searching.study import STORAGE_ERRORS, SearchStudy, StudyOptions, reason_of
from pipeline.searching.training_run import ObjectiveError, TrainingRun
from pipeline.searching.worker import work
from schemas.command_line import CommandParser, Flag, Options

T = TypeVar("T")
FAILED = 1
_SET_FOR_EACH = "which sets it for each trial"
_NOT_GIVEN = {
    "--run-dir": _SET_FOR_EACH,
    "--quiet": _SET_FOR_EACH,
    "--other-data": _SET_FOR_EACH,
    "--prometheus-port": "whose processes would all serve their trials on the one port",
}
_ONE_PROCESS = ("auto", "default", "one_device", "mirrored", "tpu")
# What shapes no run, and what may differ between the processes of a search.
_NOT_SHAPING = (
    "checkpoint_every",
    "data_dir",
    "info",
    "keep",
    "other_data",
    "quiet",
    "run_dir",
    "services",
    "strategy",
    "version",
)
_STUDY = Options(
    StudyOptions,
    trials=Flag(metavar="N"),
    objective=Flag(metavar="FIGURE"),
    storage=Flag(metavar="URL", default="a file in the search folder"),
    study=Flag(metavar="NAME", default="that of the search folder"),
    sampler_seed=Flag(metavar="SEED"),
)
_CLAIMS = Options(
    ClaimOptions,
    heartbeat_s=Flag(metavar="SECONDS"),
    grace_s=Flag(metavar="SECONDS"),
)


class Checked(NamedTuple):
    """A search whose options have been checked, and the values of its first trial."""

    definition: str  # JSON, as it comes from another process
    first: dict[str, Value]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
      0 once all trials of the study have ended, `FAILED` if none of them has a result, a file can't
      be written, or trials fail that may train elsewhere, `STOPPED` where it was told to stop
      before, or the study or the dataset can't be reached.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # the command tells of trials itself
    parser = make_parser()
    # DATA_DIR is among those of pipeline.train: only its parser knows which options have a value.
    args, arguments = parser.parse_known_args(argv)
    with StopRequest() as stop:
        try:
            study = SearchStudy(args.search_dir, _STUDY.make(args))
            claims = _CLAIMS.make(args)
            what = (arguments, args.space, args.objective, args.pruner, study.version())
            try:
                checked = _apart(check, *what)
            except FileNotFoundError as error:
                if study.study is None:
                    raise
                # It was there when the study was made.
                _say(f"{error}; the same command goes on once it is there again")
                return STOPPED
            definition = Definition.from_json(checked.definition)
            study.define(definition, first=checked.first)
        except (ValueError, FileNotFoundError) as error:
            parser.error(str(error))
        except STORAGE_ERRORS as error:
            return _lost_study(error)
        except OSError as error:
            return _no_file(error, args.search_dir)
        try:
            is_done = work(
                study,
                TrainingRun(
                    definition,
                    arguments,
                    lambda values: _apart(
                        find_fault, arguments, definition.space, definition.version, values
                    ),
                ),
                claims,
                should_stop=lambda: stop.is_made,
                show=lambda *what: _show(study, *what, quiet=args.quiet),
            )
            write_report(study)
        except (ObjectiveError, JournalError) as error:
            parser.error(str(error))
        except (OutageError, TrialsFailError) as error:
            _say(str(error))
            return STOPPED if isinstance(error, OutageError) else FAILED
        except STORAGE_ERRORS as error:
            return _lost_study(error)
        except OSError as error:
            return _no_file(error, args.search_dir)
    if not is_done:
        _say("stopped: the same command goes on")
        return STOPPED
    print(summary(study))
    return 0 if ranked(study) else FAILED


def make_parser() -> CommandParser:
    """Makes the command's parser, without the options of `pipeline.train`."""
    parser = CommandParser(
        "pipeline.search",
        "[DATA_DIR] --search-dir DIR",
        "Searches for good options of pipeline.train. Each trial is a training run. --trials and "
        "--space have to be given.\n\nRun the command once more, on this machine or another, to "
        "have one more process work on the same study.",
        epilog="All other options are those of pipeline.train, and hold for every trial. On "
        "SIGTERM or Ctrl-C the trial under way writes a checkpoint, the command exits with status "
        f"{STOPPED}, and whichever process comes next goes on with the trial.",
    )
    parser.add_argument(
        "--search-dir",
        required=True,
        metavar="DIR",
        help="folder of the run folders, the table and the pictures; all processes share it",
    )
    parser.add_argument(
        "--space",
        action="append",
        required=True,
        metavar="NAME=RANGE",
        help="an option of pipeline.train and its values: LOW..HIGH, log:LOW..HIGH, or values with "
        "commas; such as learning_rate=log:1e-4..1e-1 or model.width=8,16,32. Once for each option",
    )
    parser.add_argument("--quiet", action="store_true", help="no line when a trial ends")
    _STUDY.add_to(parser.add_argument_group("study"))
    _CLAIMS.add_to(parser.add_argument_group("processes"))
    return parser


def _apart(function: Callable[..., T], *what: object) -> T:
    """Calls a function in another process: TensorFlow takes memory that this one never needs."""
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=end_with_parent
    ) as pool:
        # Ctrl-C comes to all processes of a terminal, and only this one heeds it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        called = pool.submit(function, *what)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return called.result()


def check(
    arguments: Sequence[str],
    space_texts: Sequence[str],
    objective: str,
    pruner: str,
    version: int | None,
) -> Checked:
    """Checks the options of a search.

    Args:
      arguments: those of `pipeline.train`.
      space_texts: as of `--space`.
      objective: the figure to optimize.
      pruner: name of the pruner.
      version: version of the dataset, if the study has one already and the arguments name none.

    Raises:
      ValueError: an option is wrong, or a trial could have a value that is wrong.
      FileNotFoundError: there is no dataset.
    """
    from pipeline.train_arguments import check_options, option_types, trace_task

    for flag, reason in _NOT_GIVEN.items():
        if any(argument.partition("=")[0] == flag for argument in arguments):
            raise ValueError(f"{flag} can't be given to a search, {reason}")
    fixed = _fixed(arguments, version)
    given = check_options(fixed)
    _check_process(given["strategy"])
    if pruner != "none" and given["evaluate_every"] is None:
        raise ValueError(
            f"--pruner {pruner} looks at evaluations, and there is only one, at the end: give "
            "--evaluate-every, or --pruner none"
        )
    space = parse_space(space_texts, option_types(given["task"]))
    names = {argument.partition("=")[0].lstrip("-").replace("-", "_") for argument in arguments}
    if twice := sorted(names & space.keys()):
        flag = flag_of(twice[0])
        raise ValueError(f"{flag} is given for all trials, and is in --space: leave one out")
    usual = _usual(space)
    for name, distribution in space.items():
        for value in samples_of(distribution):
            try:
                check_options([*fixed, *to_flags({**usual, name: value})])
            except ValueError as error:
                raise ValueError(f"--space {name}: with {value}, {error}") from error
    trace_task([*fixed, *to_flags(usual)])
    shaping = {name: value for name, value in given.items() if name not in (*_NOT_SHAPING, *space)}
    definition = Definition(
        space=space,
        objective=objective,
        digest=given["info"].digest,
        version=given["info"].version,
        options={name: _plain(value) for name, value in shaping.items()},
    )
    defaults = {name: given[name] for name in space}
    has_first = all(contains(space[name], value) for name, value in defaults.items())
    return Checked(definition.to_json(), defaults if has_first else {})


def find_fault(
    arguments: Sequence[str], space: Space, version: int, values: Mapping[str, Value]
) -> tuple[Ending, str]:
    """Finds out why a trainer refused the values of a trial.

    Args:
      arguments: those of `pipeline.train`.
      space: the ranges.
      version: version of the dataset.
      values: values of the trial.

    Returns:
      The ending of the trial and the reason, as `training_run.FindFault` says.
    """
    from pipeline.train_arguments import check_options

    fixed = _fixed(arguments, version)
    try:
        check_options([*fixed, *to_flags(_usual(space))])  # which were right in the beginning
    except (ValueError, OSError) as error:
        return "unavailable", str(error)
    try:
        check_options([*fixed, *to_flags(values)])
    except FileNotFoundError as error:
        return "unavailable", str(error)
    except ValueError as error:
        return "refused", str(error)
    return "error", ""


def _fixed(arguments: Sequence[str], version: int | None) -> list[str]:
    """Returns the arguments that all trials share."""
    return [*([f"--version={version}"] if version else []), *arguments, "--run-dir=trial"]


def _usual(space: Space) -> dict[str, Value]:
    """Returns values that were right when the search began: the first of each range."""
    return {name: samples_of(distribution)[0] for name, distribution in space.items()}


def _check_process(strategy: str) -> None:
    if strategy not in _ONE_PROCESS or "TF_CONFIG" in os.environ:
        cluster = f"--strategy {strategy}" if strategy not in _ONE_PROCESS else "TF_CONFIG"
        raise ValueError(
            f"{cluster} is for runs of several processes, and a trial is one: start one search for "
            f"each process instead, with a strategy among {', '.join(_ONE_PROCESS)}"
        )


def _plain(value: Any) -> Value:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _show(
    study: SearchStudy,
    number: int,
    values: Mapping[str, Value],
    outcome: Outcome,
    *,
    quiet: bool,
) -> None:
    """Tells of a trial that has ended, and brings the report up to date."""
    write_report(study)
    if quiet:
        return
    options = ", ".join(f"{name} {_short(value)}" for name, value in values.items())
    objective = study.definition.objective
    end = outcome.ending if outcome.value is None else f"{objective} {outcome.value:.4g}"
    because = f" ({outcome.reason})" if outcome.reason else ""
    print(f"trial {number}: {end} at step {outcome.step:,}{because}: {options}", flush=True)


def _short(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _lost_study(error: Exception) -> int:
    _say(
        f"the study can't be reached ({reason_of(error)}): the same command goes on once it can; "
        "if it never could, check --storage"
    )
    return STOPPED


def _no_file(error: OSError, folder: str) -> int:
    where = error.filename or folder
    _say(f"{where}: {error.strerror}: the same command goes on once this is put right")
    return FAILED


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


if __name__ == "__main__":
    run_program(main)
