"""The study of a search: exactly its trials, one definition, and storages that can't be opened."""

import dataclasses
import re
import threading
from pathlib import Path

import pytest

pytest.importorskip("optuna")

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.pruners import MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.trial import TrialState

from pipeline.searching.definition import Definition
from pipeline.searching.space import suggest
from pipeline.searching.study import SearchStudy, StudyError, StudyOptions
from tests.support.searches import FIRST, SPACE, definition_of, open_study


@pytest.mark.slow
@pytest.mark.parametrize("storage", [None, "sqlite"])
def test_processes_that_open_it_together_make_exactly_its_trials(tmp_path: Path, storage):
    url = f"sqlite:///{tmp_path / 'study.db'}" if storage else None
    opened: list[SearchStudy] = []

    def open_it() -> None:
        opened.append(open_study(tmp_path / "first", trials=7, storage=url))

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4
    assert [study.name for study in opened] == ["first"] * 4
    for study in opened:
        states = [trial.state for trial in study.frozen_trials()]
        assert states == [TrialState.WAITING] * 7
    more = open_study(tmp_path / "first", trials=9, storage=url)
    assert len(more.frozen_trials()) == 9
    fewer = open_study(tmp_path / "first", trials=2, storage=url)
    assert [trial.number for trial in fewer.frozen_trials()] == [0, 1]


def test_the_first_trial_has_the_defaults_and_others_differ_by_their_number(tmp_path: Path):
    drawn = []
    for folder in ("a", "b"):
        study = open_study(tmp_path / folder, sampler="random")
        drawn.append([suggest(study.begin(number), SPACE) for number in range(3)])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] == FIRST
    assert drawn[0][1]["learning_rate"] != drawn[0][2]["learning_rate"]
    other = open_study(tmp_path / "c", sampler="random", sampler_seed=1)
    assert suggest(other.begin(1), SPACE) != drawn[0][1]


def test_another_search_is_refused(tmp_path: Path):
    open_study(tmp_path)
    narrow = {**SPACE, "model.width": CategoricalDistribution([8, 32])}
    with pytest.raises(StudyError) as error:
        open_study(tmp_path, definition=definition_of(space=narrow, options={"steps": 5}))
    assert str(error.value) == (
        f"study {tmp_path.name!r} is another search:\n"
        "  --space model.width: 8,16 then, 8,32 now\n"
        "  --steps: not there then, 5 now\n"
        "Give the same options, or choose another --search-dir or --study."
    )
    assert SearchStudy(tmp_path, StudyOptions(trials=3)).version() == 1


def test_a_study_in_a_database_has_one_folder(tmp_path: Path):
    """Machines that mount no common folder would begin the trials of each other anew."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    here, elsewhere = tmp_path / "here" / "first", tmp_path / "elsewhere" / "first"
    open_study(here, storage=url)
    sentence = (
        f"study 'first' has another search folder than {elsewhere}: give that one, which all "
        "processes must share, or choose another --study"
    )
    with pytest.raises(StudyError, match=f"^{re.escape(sentence)}$"):
        open_study(elsewhere, storage=url)
    assert len(open_study(elsewhere, storage=url, study="second").frozen_trials()) == 3
    here.rename(tmp_path / "first")  # mounted under another name, say
    assert len(open_study(tmp_path / "first", storage=url, trials=4).frozen_trials()) == 4


def test_a_study_of_others_is_refused(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.create_study(storage=url, study_name="theirs").ask()
    sentence = "study 'theirs' was not made by pipeline.search: choose another --study"
    with pytest.raises(StudyError, match=sentence):
        open_study(tmp_path, storage=url, study="theirs")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (
            "nonsense",
            "--storage 'nonsense' is not the URL of a database, such as",
        ),
        ("sqlite:////nowhere/at/all.db", "sqlite:////nowhere/at/all.db can't be opened (unable to"),
        ("nosuch://u:secret@host/db", "nosuch://u:***@host/db"),
    ],
)
def test_a_storage_that_can_not_be_opened(tmp_path: Path, url: str, sentence: str):
    with pytest.raises(StudyError, match=re.escape(sentence)) as error:
        SearchStudy(tmp_path, StudyOptions(trials=1, storage=url))
    assert "secret" not in str(error.value)


def test_a_folder_that_can_not_be_made(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match=r"can't be made \(Not a directory\): choose another one"):
        SearchStudy(tmp_path / "file" / "search", StudyOptions(trials=1))


def test_a_folder_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    sentence = (
        "search folder s3://bucket/first is in an object store, which has no locks: choose a "
        "folder on a file system that all processes share"
    )
    with pytest.raises(StudyError, match=f"^{sentence}$"):
        SearchStudy("s3://bucket/first", StudyOptions(trials=1))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"sampler_seed": -1}, "sampler_seed must be 0 to 2**32 - 1, got -1"),
        ({"sampler": "grid"}, "sampler must be 'tpe' or 'random', got 'grid'"),
        ({"pruner": "none "}, "pruner must be 'asha' or 'median' or 'none', got 'none '"),
        ({"objective": "loss"}, "objective must be a figure of evaluations, such as validation/lo"),
    ],
)
def test_options_that_make_no_sense(options: dict, sentence: str):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        StudyOptions(**{"trials": 1, **options})


@pytest.mark.parametrize(
    ("pruner", "evaluate_every", "kind"),
    [
        ("asha", 50, SuccessiveHalvingPruner),
        ("median", 50, MedianPruner),
        ("none", 50, NopPruner),
        ("asha", None, NopPruner),
    ],
)
def test_pruners(tmp_path: Path, pruner: str, evaluate_every: int | None, kind: type):
    definition = definition_of(options={"evaluate_every": evaluate_every})
    study = open_study(tmp_path, definition=definition, pruner=pruner)
    assert study.study is not None
    assert type(study.study.pruner) is kind


def test_a_definition_is_read_as_it_was_written():
    definition = definition_of(options={"steps": 5, "clip_norm": None, "schedule": "cosine"})
    assert Definition.from_json(definition.to_json()) == definition


@pytest.mark.parametrize(
    ("objective", "direction"),
    [
        ("validation/loss", "minimize"),
        ("validation/loss/rare_half", "minimize"),
        ("validation/accuracy", "maximize"),
        ("validation/loss_of_boxes", "maximize"),
    ],
)
def test_losses_are_minimized_and_metrics_maximized(objective: str, direction: str):
    definition = dataclasses.replace(definition_of(), objective=objective)
    assert definition.direction == direction
