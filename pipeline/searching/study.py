"""The study of a search, in a file of the search folder or in a database."""

import contextlib
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import optuna
import sqlalchemy
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage, get_storage
from optuna.trial import FrozenTrial
from sqlalchemy.engine import make_url

from pipeline.records.files import is_remote
from pipeline.searching.definition import Definition
from pipeline.searching.journal import Journal
from pipeline.searching.space import Value
from pipeline.training.run_lock import RunFolderInUseError, RunLock

JOURNAL, TRIALS = "study.journal", "trials"
STORAGE_ERRORS = (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError)
_LOCK = "study.lock"
_FOLDER_ID = "folder.id"
_DEFINITION, _FOLDER = "tillroll", "tillroll_folder"
_ATTEMPTS = 10
_PAUSE_S = 0.5
_HALVED_BY = 3


class StudyError(ValueError):
    """The study can't be opened, or is another one; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Options of a study, the same in all processes that work on it.

    Attributes:
      trials: number of trials of the study, over all processes.
      objective: figure of the run's log to optimize: validation/loss, or a metric of the task, such
        as validation/accuracy or validation/accuracy/rare_half. Losses are minimized, metrics
        maximized. Of each run, the evaluation with the lowest loss counts, whose weights the run
        keeps.
      storage: URL of the database of the study, such as
        postgresql+psycopg://user@host/database; None for a file in the search folder.
      study: name of the study in the storage; None for that of the search folder.
      sampler: "tpe" learns from earlier trials which values are good, "random" draws all alike.
      sampler_seed: seeds the sampler, together with the trial's number.
      pruner: "asha" lets the best third of the trials go on from each rung (the first evaluation,
        and three times, nine times, … its steps), "median" those that are better than the median of
        others at the same step; "none" lets all go on.
    """

    trials: int
    objective: str = "validation/loss"
    storage: str | None = None
    study: str | None = None
    sampler: Literal["tpe", "random"] = "tpe"
    sampler_seed: int = 0
    pruner: Literal["asha", "median", "none"] = "asha"

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ValueError(f"trials must be at least 1, got {self.trials}")
        if not 0 <= self.sampler_seed < 2**32:
            raise ValueError(f"sampler_seed must be 0 to 2**32 - 1, got {self.sampler_seed}")
        for name, allowed in (
            ("sampler", ("tpe", "random")),
            ("pruner", ("asha", "median", "none")),
        ):
            if getattr(self, name) not in allowed:
                choices = " or ".join(map(repr, allowed))
                raise ValueError(f"{name} must be {choices}, got {getattr(self, name)!r}")
        if not self.objective.startswith("validation/"):
            raise ValueError(
                "objective must be a figure of evaluations, such as validation/loss or "
                f"validation/accuracy, got {self.objective!r}"
            )


class SearchStudy:
    """An Optuna study of training runs, and the folder in which they lie.

    Attributes:
      study: Optuna's study.
      storage: Optuna's storage of it.
      folder: the search folder.
      options: options of the study.
    """

    def __init__(self, folder: str | Path, options: StudyOptions) -> None:
        """Opens the study; `define` makes one that is not there yet.

        Raises:
          StudyError: the storage can't be opened, or the folder is in an object store or can't be
            made.
          sqlalchemy.exc.OperationalError: the server of the database can't be reached now.
        """
        if is_remote(str(folder)):
            raise StudyError(
                f"search folder {folder} is in an object store, which has no locks: choose a "
                "folder on a file system that all processes share"
            )
        self.folder, self.options = Path(folder), options
        self._name = options.study or self.folder.resolve().name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyError(
                f"search folder {folder} can't be made ({error.strerror}): choose another one"
            ) from error
        with self._locked():
            self.storage = _open_storage(self.folder, options.storage)
        self.study = self._find()

    @property
    def name(self) -> str:
        """Name of the study in its storage."""
        return self._name

    @property
    def definition(self) -> Definition:
        """The definition of a study that `define` has made."""
        found = self._read_definition()
        assert found is not None
        return found

    def version(self) -> int | None:
        """Version of the dataset that the study is for; None if it is not defined yet."""
        found = self._read_definition()
        return found.version if found else None

    @property
    def has_defaults_first(self) -> bool:
        """True if the first trial was given its values, the defaults of the options."""
        assert self.study is not None
        return bool(self.study.trials[0].system_attrs.get("fixed_params"))

    def define(self, definition: Definition, *, first: Mapping[str, Value]) -> None:
        """Makes the study and its trials, as far as they are not there yet.

        All trials wait in the study from the beginning, so there are never more than asked for.

        Args:
          definition: what the trials have in common.
          first: values of the first trial by option; empty to let the sampler choose them.

        Raises:
          StudyError: the study is there, and has another definition or another search folder.
        """
        with self._locked():
            if self.study is None:
                self.study = optuna.create_study(
                    storage=self.storage,
                    study_name=self._name,
                    direction=definition.direction,
                    load_if_exists=True,
                )
            then = self._read_definition()
            if then is None:
                if self.study.trials:
                    raise StudyError(
                        f"study {self._name!r} was not made by pipeline.search: choose another "
                        "--study"
                    )
                self.study.set_user_attr(_DEFINITION, definition.to_json())
            elif changes := definition.changes(then):
                listing = "".join(f"\n  {change}" for change in changes)
                raise StudyError(
                    f"study {self._name!r} is another search:{listing}\n"
                    "Give the same options, or choose another --search-dir or --study."
                )
            if self.options.storage:
                self._check_folder(self.study)
            evaluate_every = definition.options.get("evaluate_every")
            self.study.pruner = _make_pruner(self.options.pruner, evaluate_every)
            for number in range(len(self.study.trials), self.options.trials):
                self.study.enqueue_trial(dict(first) if number == 0 else {})

    def frozen_trials(self) -> list[FrozenTrial]:
        """Reads the trials that count, in the order of their numbers."""
        assert self.study is not None
        return self.study.get_trials(deepcopy=False)[: self.options.trials]

    def trial_id(self, number: int) -> int:
        """Returns the storage's key of a trial."""
        study_id = self.storage.get_study_id_from_name(self._name)
        return self.storage.get_trial_id_from_study_id_trial_number(study_id, number)

    def trial_folder(self, number: int) -> Path:
        """Returns the run folder of a trial."""
        return self.folder / TRIALS / f"{number:05d}"

    def begin(self, number: int) -> optuna.Trial:
        """Makes the trial of a number ready for values to be suggested."""
        assert self.study is not None
        # By trial, so that processes with the same seed don't draw the same values.
        seed = zlib.crc32(f"{self.options.sampler_seed}/{number}".encode())
        self.study.sampler = _make_sampler(self.options.sampler, seed)
        return optuna.Trial(self.study, self.trial_id(number))

    def _check_folder(self, study: optuna.Study) -> None:
        """Makes sure that a study in a database has one search folder: its trials go on there."""
        file = self.folder / _FOLDER_ID
        own = file.read_text() if file.exists() else ""
        noted = study.user_attrs.get(_FOLDER)
        if noted is None:
            if not own:
                own = uuid.uuid4().hex
                file.write_text(own)
            study.set_user_attr(_FOLDER, own)
        elif own != noted:
            raise StudyError(
                f"study {self._name!r} has another search folder than {self.folder}: give that "
                "one, which all processes must share, or choose another --study"
            )

    def _find(self) -> optuna.Study | None:
        with contextlib.suppress(KeyError):
            return optuna.load_study(study_name=self._name, storage=self.storage)
        return None

    def _read_definition(self) -> Definition | None:
        text = self.study.user_attrs.get(_DEFINITION) if self.study else None
        return Definition.from_json(text) if text else None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lets one process at a time make the study and its trials."""
        while True:
            try:
                lock = RunLock(str(self.folder), name=_LOCK)
                break
            except RunFolderInUseError:
                time.sleep(_PAUSE_S)
        with lock:
            yield


def _open_storage(folder: Path, url: str | None) -> BaseStorage:
    if url is None:
        return JournalStorage(Journal(folder / JOURNAL))
    try:
        shown = make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError as error:
        raise StudyError(
            f"--storage {url!r} is not the URL of a database, such as "
            "postgresql+psycopg://user@host/database or sqlite:////folder/study.db"
        ) from error
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            # A connection may be cut while a trial runs for hours.
            return get_storage(RDBStorage(url, engine_kwargs={"pool_pre_ping": True}))
        except ImportError as error:
            raise StudyError(
                f"--storage {shown} needs a Python package that is not installed: install the "
                "driver of the database, for PostgreSQL by pip install 'psycopg[binary]'"
            ) from error
        except (*STORAGE_ERRORS, RuntimeError, OSError) as error:
            # Where processes with other folders make the tables of a new database, too, all but one
            # of them fail.
            is_race = isinstance(error, sqlalchemy.exc.IntegrityError) or "exists" in str(error)
            if is_race and attempt < _ATTEMPTS:
                time.sleep(_PAUSE_S)
                continue
            if _may_come_back(url, error):
                raise
            raise _unreachable(shown, error) from error
    raise AssertionError


def _may_come_back(url: str, error: Exception) -> bool:
    """Tells whether it is the error of a server that may be away for a while."""
    is_server = make_url(url).get_backend_name() != "sqlite"
    return is_server and isinstance(error, sqlalchemy.exc.OperationalError)


def _unreachable(shown: str, error: Exception) -> StudyError:
    return StudyError(
        f"the study's database {shown} can't be opened ({reason_of(error)}): check --storage, and "
        "that the database runs and lets you in"
    )


def reason_of(error: BaseException) -> str:
    """Returns what the database said, in one line, of an error of the storage."""
    if isinstance(error, optuna.exceptions.StorageInternalError) and error.__cause__:
        error = error.__cause__
    return " ".join(str(getattr(error, "orig", None) or error).split())


def _make_sampler(name: str, seed: int) -> BaseSampler:
    if name == "random":
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, constant_liar=True)  # running trials count as bad ones


def _make_pruner(name: str, evaluate_every: Value) -> BasePruner:
    if name == "none" or not isinstance(evaluate_every, int):
        return NopPruner()
    if name == "median":
        return MedianPruner()
    return SuccessiveHalvingPruner(min_resource=evaluate_every, reduction_factor=_HALVED_BY)
