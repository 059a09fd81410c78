"""Layouts that are found, beside those given: the scores, plain clustering, and a small run."""

from importlib.util import find_spec

import numpy as np
import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("scipy")

from benchmarks import found_layouts


def scores(given: list[int], found: list[int]) -> tuple[object, object]:
    score = found_layouts.score(np.array(given), np.array(found))
    return score["adjusted Rand index"], score["V-measure"]


def test_scores():
    """Figures of the documentation of scikit-learn, whose functions are the reference."""
    assert scores([0, 0, 1, 1], [1, 1, 0, 0]) == (1.0, 1.0)
    assert scores([0, 0, 1, 2], [0, 0, 1, 1]) == (0.571, 0.8)
    assert scores([0, 0, 1, 1], [0, 0, 1, 2]) == (0.571, 0.8)
    assert scores([0, 0, 0, 0], [0, 1, 2, 3]) == (0.0, 0.0)
    assert scores([0, 0], [0, 0]) == (1.0, 1.0)


def test_plain_clustering_joins_what_begins_alike():
    lines = [["ALDI SÜD", "Hauptstr. 12"], ["KIOSK AM DOM", "Domplatz 1"]]
    distances = found_layouts.tf_idf_distances([lines[0], lines[1], lines[0], lines[1]])
    given = np.array([0, 1, 0, 1])
    labels = found_layouts.best_clusters(distances, given)
    assert labels[0] == labels[2] != labels[1] == labels[3]
    assert found_layouts.nearest_share(distances, given) == 1
    assert found_layouts.nearest_share(distances, np.array([0, 0, 1, 1])) == 0


def test_it_runs(capsys: pytest.CaptureFixture[str]):
    trains = find_spec("tensorflow") is not None
    assert found_layouts.main(["--count=40", *(["--train-steps=1"] if trains else [])]) == 0
    printed = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    lines = [[cell.strip() for cell in line if cell.strip()] for line in printed]
    assert lines[0][:3] == ["receipts", "by", "layouts"]
    ways = ["--layout-from text", "--layout-from image", "tf-idf", "pHash"]
    ways += ["--layout-from model"] * trains
    assert [line[:2] for line in lines[1:]] == [["drawn", way] for way in ways]
    assert 0.5 < float(lines[1][-2]) <= 1


def test_no_steps_are_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        found_layouts.main(["--train-steps=0"])
    assert "--train-steps must be at least 1, got 0" in capsys.readouterr().err
