"""Predictions from and to object stores, on servers of their protocols."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.predict import main
from beam_jobs.storage import files
from schemas.file_names import COMPLETED
from tests.support import fake_model
from tests.support.receipts import contents, write_table
from tests.support.stores import STORE_NAMES, TestStore, started

IMAGES = 12
LAST = f"{IMAGES - 1}.png"


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this process and those that it starts import a TensorFlow that stands in."""
    fake_model.put_in_place(monkeypatch)


@pytest.fixture(params=STORE_NAMES)
def store(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[TestStore]:
    with started(request.param, tmp_path_factory.mktemp("server")) as store:
        yield store


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return fake_model.write_model(tmp_path / "model")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Table of small images."""
    rows = []
    for number in range(IMAGES):
        path = tmp_path / "in" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (40 + number, 50), "white").save(path)
        rows.append({"id": str(number), "image": path.name, "layout": "aldi"})
    return write_table(tmp_path / "in" / "receipts.jsonl", rows)


def predictions(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in found.items() if name.startswith("predictions-")}


def stored(root: str) -> dict[str, bytes]:
    found = files.list_files(files.join(root, "**"))
    return {each.path.removeprefix(root + "/"): files.read(each.path) for each in found}


def test_a_failed_prediction_resumes_and_gives_the_same_bytes(
    store: TestStore,
    model: Path,
    table: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    local = tmp_path / "out"
    options = ("--format=jsonl", "--quiet", "--max-bad-fraction=0", *store.options)
    where = ("--input", str(table), "--output", str(local), "--workers=1")
    assert main([str(model), *where, *options]) == 0

    root = files.join(store.root, "predicted")
    for name, data in contents(table.parent).items():
        if name != LAST:
            files.write(files.join(root, "in", name), data)
    output = files.join(root, "out")
    there = ("--input", files.join(root, "in", table.name), "--output", output)
    # Two workers: what reaches the store in this process must reach it in theirs.
    command = [str(model), *there, *options, "--workers=2"]
    assert main(command) == 1
    assert "the same command" in capsys.readouterr().err
    assert COMPLETED not in stored(output)
    files.write(files.join(root, "in", LAST), (table.parent / LAST).read_bytes())
    assert main(command) == 0
    found = stored(output)
    assert COMPLETED in found
    assert not any(name.startswith("_staging") for name in found)
    assert predictions(found) == predictions(contents(local)) != {}
