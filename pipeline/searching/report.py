"""The report of a search: a table and pictures in the search folder, and a summary."""

import csv
import io
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from optuna.distributions import CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from pipeline.plots.search import (
    Option,
    TrialPoint,
    draw_importance,
    draw_options,
    draw_progress,
)
from pipeline.searching.definition import Definition
from pipeline.searching.study import SearchStudy

TABLE, OPTIONS, PROGRESS, IMPORTANCE = "trials.csv", "options.png", "progress.png", "importance.png"
_SHOWN = 10
_FEWEST_FOR_IMPORTANCE = 4
_NOT_A_RESULT = (TrialState.WAITING, TrialState.RUNNING)


def write_report(study: SearchStudy) -> None:
    """Writes the table and the pictures of the trials that have ended so far."""
    trials = study.frozen_trials()
    table = to_csv(study, trials).encode()
    _replace(study.folder / TABLE, lambda path: path.write_bytes(table))
    definition = study.definition
    scored = [
        trial
        for trial in sorted(trials, key=lambda trial: str(trial.datetime_complete))
        if trial.state not in _NOT_A_RESULT and _value(trial) is not None
    ]
    if not scored:
        return
    points, label = _points(scored, definition)
    options = _options(definition)
    _replace(study.folder / OPTIONS, lambda path: draw_options(points, options, label, path))
    _replace(study.folder / PROGRESS, lambda path: draw_progress(points, label, path))
    if importance := importance_of(study):
        _replace(study.folder / IMPORTANCE, lambda path: draw_importance(importance, path))


def importance_of(study: SearchStudy) -> dict[str, float]:
    """Computes the importance of each option by PED-ANOVA (Watanabe et al., 2023).

    Returns:
      Importance by option, the highest first; empty while fewer than 4 trials are complete, or all
      of them have the same value.
    """
    complete = [trial for trial in study.frozen_trials() if trial.state == TrialState.COMPLETE]
    values = {trial.value for trial in complete}
    if len(complete) < _FEWEST_FOR_IMPORTANCE or len(values) < 2 or study.study is None:
        return {}
    return get_param_importances(study.study, evaluator=PedAnovaImportanceEvaluator())


def ranked(study: SearchStudy) -> list[FrozenTrial]:
    """Returns the complete trials, the best one first."""
    complete = [trial for trial in study.frozen_trials() if trial.state == TrialState.COMPLETE]
    sign = 1 if study.definition.is_minimized else -1
    return sorted(complete, key=lambda trial: (sign * (trial.value or 0.0), trial.number))


def to_csv(study: SearchStudy, trials: Sequence[FrozenTrial]) -> str:
    """Writes a row for each trial: number, state, objective, last step, options, folder, reason."""
    names = list(study.definition.space)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header = ("trial", "state", study.definition.objective, "step", *names, "run_dir", "reason")
    writer.writerow(header)
    for trial in trials:
        writer.writerow(
            (
                trial.number,
                trial.state.name.lower(),
                "" if _value(trial) is None else _value(trial),
                max(trial.intermediate_values, default=""),
                *(trial.params.get(name, "") for name in names),
                study.trial_folder(trial.number).relative_to(study.folder),
                trial.user_attrs.get("reason", ""),
            )
        )
    return text.getvalue()


def summary(study: SearchStudy) -> str:
    """Writes how many trials ended in which way, the best ones, and what to do with them."""
    trials = study.frozen_trials()
    states = [trial.state.name.lower() for trial in trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    lines = [f"study {study.name}: {len(trials)} trials, {counts}"]
    best = ranked(study)
    if not best:
        return f"{lines[0]}: none has a result, see {study.folder / TABLE}"
    names = list(study.definition.space)
    rows = [("trial", study.definition.objective, *names)]
    for trial in best[:_SHOWN]:
        numbers = (trial.value, *(trial.params[name] for name in names))
        rows.append((str(trial.number), *map(_short, numbers)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells))
    lines.append(_against_defaults(study, best[0]))
    lines.append(f"run folder of the best trial: {study.trial_folder(best[0].number)}")
    lines.append(f"all trials: {study.folder / TABLE}; pictures beside it")
    return "\n".join(filter(None, lines))


def _against_defaults(study: SearchStudy, best: FrozenTrial) -> str:
    """Compares the best trial's error with that of the first one, which has the defaults."""
    first = study.frozen_trials()[0]
    if not study.has_defaults_first or first.state != TrialState.COMPLETE:
        return ""
    if best.number == first.number:
        return "trial 0, which has the defaults, is the best"
    (before, now), label = _errors([first, best], study.definition)
    if not before > 0:
        return ""
    return (
        f"{label}: {now:.4g}, {1 - now / before:.0%} less than the defaults' {before:.4g} (trial 0)"
    )


def _points(trials: Sequence[FrozenTrial], definition: Definition) -> tuple[list[TrialPoint], str]:
    errors, label = _errors(trials, definition)
    points = [
        TrialPoint(values=trial.params, error=error, is_complete=trial.state == TrialState.COMPLETE)
        for trial, error in zip(trials, errors, strict=True)
    ]
    return points, label


def _errors(trials: Sequence[FrozenTrial], definition: Definition) -> tuple[list[float], str]:
    """Returns what is lower for better trials, and its label.

    That is the loss, or what metrics such as the accuracy, within 0…1, lack to 1.
    """
    values = [value for trial in trials if (value := _value(trial)) is not None]
    if definition.is_minimized:
        return values, definition.objective
    if all(0 <= value <= 1 for value in values):
        return [1 - value for value in values], f"1 - {definition.objective}"
    return [-value for value in values], f"-{definition.objective}"


def _value(trial: FrozenTrial) -> float | None:
    """Returns the objective of a trial; of a pruned one, that of its last evaluation."""
    if trial.state == TrialState.COMPLETE:
        return trial.value
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        return trial.intermediate_values[max(trial.intermediate_values)]
    return None


def _options(definition: Definition) -> list[Option]:
    options = []
    for name, distribution in definition.space.items():
        if isinstance(distribution, CategoricalDistribution):
            options.append(Option(name=name, choices=tuple(distribution.choices)))
        else:
            options.append(Option(name=name, is_log=getattr(distribution, "log", False)))
    return options


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file at once, though other processes may do the same."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.partial")
    write(partial)
    partial.replace(path)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
