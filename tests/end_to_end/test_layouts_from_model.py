"""Layouts that a model finds: receipts whose embeddings are near each other."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")
pytest.importorskip("scipy")

from beam_jobs import build as build_module
from beam_jobs.compact import main as compact_main
from beam_jobs.verify import verify
from tests.support import fake_model
from tests.support.dataset_files import manifest_of, records_of
from tests.support.fake_model import EMBEDDING, FAILS, NOT_FINITE
from tests.support.grown import table_of
from tests.support.receipts import contents

WIDTHS = {"narrow": range(40, 52), "wide": range(61, 67), "widest": (81, 83)}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets this process and those that it starts import a TensorFlow that stands in."""
    fake_model.put_in_place(monkeypatch)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    return fake_model.write_model(folder / "embeds", fake_model.OUTPUTS | EMBEDDING)


def rows_of(folder: Path, widths: dict[str, int]) -> list[dict]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, width in widths.items():
        Image.effect_noise((width, 50), 60).save(folder / f"{name}.png")
    return [{"id": name, "image": str(folder / f"{name}.png")} for name in widths]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    widths = {f"{kind}-{width}": width for kind, some in WIDTHS.items() for width in some}
    return rows_of(tmp_path_factory.mktemp("images"), widths)


@pytest.fixture
def found(rows: list[dict], model: Path, build, tmp_path: Path) -> Path:
    out = tmp_path / "found"
    assert build(table_of(tmp_path, "rows", rows), out, "--shards=2", by(model)) == 0
    return out


def by(model: Path) -> str:
    return f"--layout-from=model={model}"


def kinds(directory: Path) -> dict[str, set[str]]:
    """Layouts of the receipts of each kind."""
    names: dict[str, set[str]] = {}
    for split in manifest_of(directory).splits:
        for shard in records_of(directory, split):
            for record in shard:
                kind = record["image/source_id"].partition("-")[0]
                names.setdefault(kind, set()).add(record["receipt/layout"])
    return names


BY_SIZE = {kind: {f"cluster-{number:05d}"} for number, kind in enumerate(WIDTHS)}


def test_near_embeddings_are_a_layout(found: Path):
    assert kinds(found) == BY_SIZE
    options = manifest_of(found).build_options
    assert (options["layout_from"], options["layout_distance"]) == ("model", 0.5)
    assert list(verify(str(found), workers=1)) == []


def test_bytes_do_not_depend_on_workers(
    found: Path, rows: list[dict], model: Path, build, tmp_path: Path
):
    table = table_of(tmp_path, "again", rows[::-1])
    assert build(table, tmp_path / "two", "--shards=2", by(model), "--workers=2") == 0
    assert contents(tmp_path / "two") == contents(found)


def test_raw_images_are_given_as_files(rows: list[dict], model: Path, build, tmp_path: Path):
    raw = ("--encoding=raw", "--raw-size=50x64", "--channels=1")
    table = table_of(tmp_path, "rows", rows)
    assert build(table, tmp_path / "out", "--shards=2", by(model), *raw) == 0
    assert kinds(tmp_path / "out") == {kind: {"cluster-00000"} for kind in WIDTHS}


def test_what_is_appended_gets_the_same_layouts(found: Path, model: Path, build, tmp_path: Path):
    new = rows_of(tmp_path / "new", {"wide-70": 70, "broad-105": 105})
    table = table_of(tmp_path, "new", new)
    elsewhere = Path(shutil.copytree(model, tmp_path / "elsewhere"))
    assert build(table, found, "--append", by(elsewhere), "--layout-distance=0.5") == 0
    names = BY_SIZE | {"broad": {"cluster-00003"}}
    assert kinds(found) == names
    assert compact_main([str(found)]) == 0
    assert kinds(found) == names
    assert manifest_of(found).build_options["layout_from"] == "model"


def test_an_append_needs_the_same_model(
    found: Path, rows: list[dict], build, tmp_path: Path, capsys
):
    table = table_of(tmp_path, "more", rows[:3])
    other = fake_model.write_model(tmp_path / "other", EMBEDDING)
    for option, sentence in (
        (None, "which holds no copy of it: give --layout-from model=DIR"),
        ("--layout-from=text", "which holds no copy of it: give --layout-from model=DIR"),
        (by(other), f"were found by another model than {other}"),
    ):
        with pytest.raises(SystemExit):
            build(table, found, "--append", *([option] if option else []))
        assert sentence in capsys.readouterr().err


def test_the_distance_is_the_datasets(rows: list[dict], model: Path, build, tmp_path: Path, capsys):
    table, out = table_of(tmp_path, "rows", rows), tmp_path / "out"
    assert build(table, out, by(model), "--layout-distance=0.00001") == 0
    assert kinds(out)["wide"] != {"cluster-00000"}
    assert len(manifest_of(out).vocabularies["layout"]) > 5
    assert build(table, out, "--append", by(model)) == 0
    with pytest.raises(SystemExit):
        build(table, out, "--append", by(model), "--layout-distance=0.3")
    assert "--layout-distance 0.3: the dataset" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("width", "sentence"),
    [
        (FAILS, "refuses the image of 'odd': Invalid JPEG data or crop window; leave that receipt"),
        (NOT_FINITE, "gives an embedding of 'odd' that is not finite: leave that receipt out"),
    ],
)
def test_a_model_that_fails(
    width: int, sentence: str, rows: list[dict], model: Path, build, tmp_path: Path, capsys
):
    odd = rows_of(tmp_path / "odd", {"odd": width})
    table = table_of(tmp_path, "rows", [*rows[:5], *odd])
    assert build(table, tmp_path / "out", by(model)) == 1
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out" / "COMPLETED").exists()


@pytest.mark.parametrize(
    ("outputs", "sentence"),
    [
        ({"width": (9, [-1])}, "gives width int64 ['n']; to find layouts, a model must give one"),
        ({"a": (1, [-1, 2]), "b": (1, [-1, 2])}, "a model must give one vector of 2 to 4,096"),
        ({"a": (1, [-1, -1])}, "a model must give one vector"),
    ],
)
def test_a_model_without_an_embedding(
    outputs: dict, sentence: str, rows: list[dict], build, tmp_path: Path, capsys
):
    other = fake_model.write_model(tmp_path / "other", outputs)
    with pytest.raises(SystemExit):
        build(table_of(tmp_path, "rows", rows), tmp_path / "out", by(other))
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--layout-from=model",), "must be one of column, text, image, model=DIR, none"),
        (("--layout-from=model=",), "must be one of column, text, image, model=DIR, none"),
        (("--layout-from=text=/x",), "got 'text=/x'"),
        (("--layout-from=model=/nowhere",), "/nowhere holds no exported model"),
        (("--layout-distance=0.2",), "--layout-distance is for layouts that a model finds"),
    ],
)
def test_bad_values(
    options: tuple[str, ...], sentence: str, rows: list[dict], build, tmp_path: Path, capsys
):
    with pytest.raises(SystemExit):
        build(table_of(tmp_path, "rows", rows), tmp_path / "out", *options)
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("distance", ["0", "1", "-1", "nan"])
def test_bad_distances(distance: str, rows: list[dict], model: Path, build, tmp_path: Path, capsys):
    with pytest.raises(SystemExit):
        build(
            table_of(tmp_path, "rows", rows),
            tmp_path / "out",
            by(model),
            f"--layout-distance={distance}",
        )
    assert "--layout-distance" in capsys.readouterr().err


def test_a_dry_run_and_a_machine_without_tensorflow_are_refused(
    rows: list[dict], model: Path, build, tmp_path: Path, monkeypatch, capsys
):
    table = table_of(tmp_path, "rows", rows)
    with pytest.raises(SystemExit):
        build(table, tmp_path / "out", by(model), "--dry-run")
    assert "--dry-run reads no image, and --layout-from model" in capsys.readouterr().err
    monkeypatch.setattr(build_module, "has_tensorflow", lambda: False)
    with pytest.raises(SystemExit):
        build(table, tmp_path / "out", by(model))
    assert "TensorFlow, which is not installed here" in capsys.readouterr().err
