"""The options that checkpoints remember, and those of them that may change.

There are three kinds of options when a run goes on from a checkpoint:

- Options that shape the stream of examples, or the model: with another value it would be another
  run. This is refused unless the user says --other-data.
- Options that shape the updates: a new value counts from that step on, and the log says so.
- All other options change neither losses nor weights, and are not remembered.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from pipeline.config import InputConfig
from pipeline.records.info import DatasetInfo
from pipeline.tasks.base import Task
from pipeline.training.options import TrainOptions
from schemas.versioned_json import from_text, to_text

# Of TrainOptions and RunOptions; `steps` is where the cosine schedule ends.
STREAM_OPTIONS = ("global_batch_size", "seed", "train_only")
UPDATE_OPTIONS = (
    "steps",
    "learning_rate",
    "learning_rate_batch",
    "schedule",
    "warmup_steps",
    "weight_decay",
    "clip_norm",
    "accumulate",
    "mixed_precision",
    "backup_workers",
)
COMPARISON_OPTIONS = ("evaluation_split",)  # losses of other splits can't be compared
FREE_OPTIONS = (
    "steps_per_call",
    "checkpoint_every",
    "keep",
    "evaluate_every",
    "patience",
    "other_data",
)
# Of InputConfig; all others shape the stream. Augmentations give the same pixels in either place.
FREE_INPUT_OPTIONS = (
    "parallel_decodes",
    "placement",
    "reading.parallel_reads",
    "reading.buffer_bytes",
    "reading.verify",
    "reading.portable",
)
_FORMAT, _VERSION = "tillroll-run", 1

Value = str | int | float | bool | None


class Change(NamedTuple):
    """An option whose value differs from that of a checkpoint."""

    name: str
    then: Value
    now: Value

    def __str__(self) -> str:
        return f"{self.name}: {self.then} then, {self.now} now"


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """Options by dotted name, such as "input.balance.by"; of a dataclass, its name comes first.

    Attributes:
      stream: options that shape the examples and the model.
      updates: options that shape the updates, and those on which the comparison of losses depends.
      dataset_version: the version of the dataset, by which it is found again. Whether it is the
        same data, its digest tells.
      defaults: default values of options. An option that a checkpoint lacks is newer than the
        checkpoint, which was trained with its default of today.
    """

    stream: Mapping[str, Value]
    updates: Mapping[str, Value]
    dataset_version: int | None = None
    defaults: Mapping[str, Value] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        task: Task,
        info: DatasetInfo,
        config: InputConfig,
        options: TrainOptions,
    ) -> Self:
        """Makes the identity of a run on the dataset `info`."""
        stream = dataset_options(info)
        defaults: dict[str, Value] = {}
        _flatten("task", task, stream, defaults)
        # Augmentation on the devices needs the seeds, which no task asks for.
        features = tuple(name for name in config.features or () if name != "seed")
        config = dataclasses.replace(config, features=features, placement="host")
        _flatten("input", config, stream, defaults)
        # One option instead of two for each phase, so that a change of it can be read.
        for name in [name for name in stream if name.startswith("input.balance.alpha.")]:
            del stream[name]
        alphas = config.balance.phases
        stream["input.balance.alpha"] = (
            float(alphas[0][0]) if len(alphas) == 1 else config.balance.alpha_text
        )
        for name in FREE_INPUT_OPTIONS:
            del stream[f"input.{name}"]
        flat: dict[str, Value] = {}
        for field in dataclasses.fields(options):
            _flatten(field.name, _joined(getattr(options, field.name)), flat, {})
            _flatten(field.name, _joined(field.default), defaults, {})
        return cls(
            stream={**stream, **{name: flat[name] for name in STREAM_OPTIONS}},
            updates={name: flat[name] for name in UPDATE_OPTIONS},
            dataset_version=info.version,
            defaults=defaults,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads the identity of a checkpoint.

        Raises:
          ValueError: the text is not an identity, or one of a newer version.
        """
        repair = "choose another run folder, or say --other-data to go on"
        values = from_text(text, format_name=_FORMAT, newest_version=_VERSION, repair=repair)
        return cls(
            stream=values["stream"],
            updates=values["updates"],
            dataset_version=values.get("dataset_version"),
        )

    def to_json(self) -> str:
        """Writes the identity as text, for a checkpoint."""
        values = {
            "stream": self.stream,
            "updates": self.updates,
            "dataset_version": self.dataset_version,
        }
        return to_text(values, format_name=_FORMAT, version=_VERSION)

    def also(self, updates: Mapping[str, Value]) -> Self:
        """Adds further options of the updates."""
        return dataclasses.replace(self, updates={**self.updates, **updates})

    def stream_changes(self, then: Self) -> list[Change]:
        """Lists options of the stream that differ from those of a checkpoint."""
        return list(_changes(then.stream, self.stream, self.defaults))

    def update_changes(self, then: Self) -> list[Change]:
        """Lists options of the updates that differ from those of a checkpoint."""
        return list(_changes(then.updates, self.updates, self.defaults))


def dataset_options(info: DatasetInfo) -> dict[str, Value]:
    """Returns the digests of a dataset and of its list of excluded records."""
    excluded = hashlib.sha256(info.excluded.to_json().encode()).hexdigest()[:12]
    return {"dataset": info.digest, "excluded": excluded if len(info.excluded) else None}


def _changes(
    then: Mapping[str, Value], now: Mapping[str, Value], defaults: Mapping[str, Value]
) -> Iterable[Change]:
    # An option that the checkpoint does not know had its default then; one that is gone is None.
    for name in sorted(then.keys() | now.keys()):
        change = Change(name, then.get(name, defaults.get(name)), now.get(name))
        if change.then != change.now:
            yield change


def _joined(value: Any) -> Any:
    """Makes one text of a tuple of names, and None of an empty one."""
    return (",".join(value) or None) if isinstance(value, tuple) else value


def _flatten(name: str, value: Any, values: dict[str, Value], defaults: dict[str, Value]) -> None:
    """Adds a value and its parts to `values`, and the defaults of fields to `defaults`.

    `Balance(by="shop")` as "balance" adds "balance": "Balance", "balance.alpha": 1.0, …
    """
    if value is None or isinstance(value, str | int | float):
        values[name] = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        values[name] = type(value).__qualname__  # without its module, which may move
        for field in dataclasses.fields(value):
            part = f"{name}.{field.name}"
            if field.default is not dataclasses.MISSING:
                _flatten(part, field.default, defaults, {})
            elif field.default_factory is not dataclasses.MISSING:
                _flatten(part, field.default_factory(), defaults, {})
            _flatten(part, getattr(value, field.name), values, defaults)
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            _flatten(f"{name}.{index}", item, values, defaults)
    else:
        # Without the address, so that a function is written the same in every process.
        values[name] = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
