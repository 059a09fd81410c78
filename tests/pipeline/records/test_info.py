"""Facts about a dataset directory, and the sentences where there is none."""

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from pipeline.records.info import DATA_DIR_VARIABLE, load_info
from pipeline.records.sequence import Records
from schemas.file_names import COMPLETED
from schemas.least_certain import LeastCertain, UncertainReceipt
from tests.support.dataset_factory import LAYOUTS, exclude, list_least_certain
from tests.support.dataset_files import MANIFEST, change_manifest, flip


def test_reads_a_directory(directory: Path):
    info = load_info(directory)
    assert info.layouts == tuple(sorted(LAYOUTS))
    assert info.records("train") == 32
    assert info.records("validation") == 0


def test_directory_comes_from_the_environment(directory: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(directory))
    assert load_info().data_dir == str(directory)


def test_a_directory_may_be_relative_and_given_as_bytes(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Files are found after the process has changed its working directory."""
    monkeypatch.chdir(directory.parent)
    infos = [
        load_info(path) for path in (directory.name, f"./{directory.name}/", Path(directory.name))
    ]
    infos.append(load_info(directory.name.encode()))  # type: ignore[arg-type]
    records = Records(directory.name, "train")
    monkeypatch.chdir(tmp_path)
    assert {info.data_dir for info in infos} == {str(directory)}
    assert len(infos[0].record_index("train")) == len([*records]) == 32


def test_an_index_of_another_dataset_is_refused(directory: Path, tmp_path: Path):
    info = load_info(shutil.copytree(directory, tmp_path / "copy"))
    index = Path(info.data_dir, info.split("train").shards[0].index_name)
    flip(index, index.stat().st_size - 100)
    for read in (lambda: info.positions("train", {"alpha-4"}), lambda: info.record_index("train")):
        with pytest.raises(ValueError, match="has another checksum than the manifest says: resto"):
            read()


def test_positions_are_those_of_records(directory: Path, tmp_path: Path):
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    exclude(copy, {0: [1, 2], 2: [0]})
    info, records = load_info(copy), Records(copy, "train")
    ids = [record["image/source_id"] for record in records]
    expected = {id_: position for position, id_ in enumerate(ids)}
    assert info.positions("train", {*ids, "nobody's", "alpha-4"}) == expected
    assert "alpha-4" not in expected
    assert info.positions("train", {ids[9]}) == {ids[9]: 9}
    assert info.positions("validation", set(ids)) == {}


def test_the_least_certain_receipts_are_read(directory: Path, tmp_path: Path):
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    assert load_info(copy).least_certain() is None
    receipt = UncertainReceipt(id="alpha-4", split="train", layout="alpha", similarity=0.5)
    path = list_least_certain(copy, LeastCertain.of([receipt]))
    assert load_info(copy).least_certain() == LeastCertain(receipts=(receipt,))
    path.unlink()
    with pytest.raises(ValueError, match=r"least_certain\.json can't be read: No such file"):
        load_info(copy).least_certain()


@pytest.mark.parametrize(("batch_size", "steps"), [(1, 32), (10, 3), (32, 1), (33, 1)])
def test_steps_per_epoch(directory: Path, batch_size: int, steps: int):
    assert load_info(directory).steps_per_epoch("train", batch_size) == steps


@pytest.mark.parametrize(
    ("batch_size", "block_length", "steps"), [(4, 2, 8), (6, 3, 4), (32, 8, 1)]
)
def test_steps_per_epoch_of_runs(directory: Path, batch_size: int, block_length: int, steps: int):
    """Four shards of eight records: runs of three leave two of each over."""
    info = load_info(directory)
    assert info.steps_per_epoch("train", batch_size, block_length=block_length) == steps


@pytest.mark.parametrize(("batch_size", "block_length"), [(0, 1), (4, 8), (12, 8)])
def test_batches_that_runs_do_not_fill(directory: Path, batch_size: int, block_length: int):
    sentence = f"a positive multiple of block_length {block_length}, got {batch_size}$"
    with pytest.raises(ValueError, match=sentence):
        load_info(directory).steps_per_epoch("train", batch_size, block_length=block_length)


@pytest.mark.parametrize(
    ("batch_size", "sentence"),
    [
        (0, "global_batch_size must be at least 1, got 0"),
        (-8, "global_batch_size must be at least 1, got -8"),
        (8.0, "global_batch_size must be an integer, such as 256, got 8.0"),
    ],
)
def test_evaluation_steps_of_no_batch(directory: Path, batch_size: int, sentence: str):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        load_info(directory).evaluation_steps("train", batch_size)


def test_record_index_holds_every_record(directory: Path):
    index = load_info(directory).record_index("train")
    assert sorted(index.ids()) == sorted(
        f"{layout}-{number}"
        for number, layout in enumerate(
            name for name in sorted(LAYOUTS) for _ in range(LAYOUTS[name])
        )
    )


def test_neither_argument_nor_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)
    with pytest.raises(ValueError, match="pass data_dir, or set the environment variable TILLROLL"):
        load_info()


def test_unfinished_directory(directory: Path, tmp_path: Path):
    (tmp_path / MANIFEST).parent.mkdir(parents=True)
    (tmp_path / MANIFEST).write_bytes((directory / MANIFEST).read_bytes())
    with pytest.raises(FileNotFoundError) as error:
        load_info(tmp_path)
    assert str(error.value) == (
        f"{tmp_path} holds no finished dataset (no file COMPLETED): check the path, or build it "
        "with python -m beam_jobs.build"
    )


def test_newer_format_is_refused(directory: Path, tmp_path: Path):
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    change_manifest(copy, lambda values: values.update(format_version=99))
    sentence = f"{copy / MANIFEST}: the tillroll-dataset file has format version 99, this tillroll"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        load_info(copy)


def test_format_1_is_refused_with_advice(directory: Path, tmp_path: Path):
    (tmp_path / COMPLETED).write_text("0a" * 32 + "\n")
    sentence = f"{tmp_path / COMPLETED}: the dataset has format version 1, this tillroll reads 2: "
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}build the dataset again"):
        load_info(tmp_path)


def test_the_manifest_of_another_version(directory: Path, tmp_path: Path):
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    change_manifest(copy, lambda values: values.update(version=2))
    sentence = f"{copy / MANIFEST}: describes version 2, not 1: "
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        load_info(copy)


def test_a_version_that_is_not_there(directory: Path):
    assert load_info(directory, version=1).version == load_info(directory).version == 1
    sentence = f"{directory}: there is no version 2: choose one of 1"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        load_info(directory, version=2)


def test_a_damaged_list_of_versions(directory: Path, tmp_path: Path):
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    flip(copy / COMPLETED, 140)
    sentence = f"{copy / COMPLETED}: damaged tillroll-versions file: its checksum is wrong; restore"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        load_info(copy)


def test_a_manifest_that_does_not_match_completed(directory: Path, tmp_path: Path):
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    flip(copy / MANIFEST, 30)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        load_info(copy)
    assert str(error.value) == (
        f"{copy / MANIFEST}: does not match COMPLETED: one of the two is damaged, or another "
        "version of tillroll wrote them; restore both from a copy, or build the dataset again"
    )
    (copy / MANIFEST).unlink()
    with pytest.raises(ValueError, match=f"^{re.escape(str(copy / MANIFEST))} can't be read: "):
        load_info(copy)


def test_unknown_split(directory: Path):
    with pytest.raises(ValueError, match="has no split 'test': choose one of train, validation"):
        load_info(directory).split("test")
