"""Datasets whose layouts have several spellings."""

import shutil
import zlib
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.compact import main as compact_main
from beam_jobs.forget import main as forget_main
from beam_jobs.verify import verify
from schemas.file_names import spellings_name
from schemas.spellings import Spellings
from tests.support.dataset_files import manifest_of
from tests.support.grown import table_of, truth_of
from tests.support.receipts import contents, draw_receipt

MERGE = "--merge-spellings"
NAMES = {"RESTORAN WAN SHENG": 9, "Restoran Wan Sheng.": 2, "RSTORAN WAN SHENG": 1, "AEON": 4}
MERGED = {
    "Restoran Wan Sheng.": "RESTORAN WAN SHENG",
    "RSTORAN WAN SHENG": "RESTORAN WAN SHENG",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("images")
    return [row(folder, f"{name}-{k}", name) for name in NAMES for k in range(NAMES[name])]


def row(folder: Path, id_: str, layout: str) -> dict:
    path = folder / f"{id_}.jpg"
    return {"id": id_, "image": str(path), "layout": layout} | {
        "boxes": draw_receipt(path, zlib.crc32(id_.encode()))
    }


@pytest.fixture(scope="module")
def merged(rows: list[dict], build, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("merged")
    assert build(table_of(folder, "rows", rows), folder / "out", "--shards=2", MERGE) == 0
    return folder / "out"


@pytest.fixture
def copy(merged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(merged, tmp_path / "copy"))


def spellings_of(directory: Path) -> dict[str, str]:
    version = manifest_of(directory).version
    text = (directory / spellings_name(version)).read_bytes()
    return dict(Spellings.from_json(text).names)


def test_spellings_are_one_layout_and_listed(merged: Path, rows: list[dict]):
    manifest = manifest_of(merged)
    assert manifest.vocabularies["layout"] == ("AEON", "RESTORAN WAN SHENG")
    assert spellings_of(merged) == MERGED
    given = {one["id"]: MERGED.get(one["layout"], one["layout"]) for one in rows}
    assert {id_: one["receipt/layout"] for id_, one in truth_of(merged).items()} == given
    assert list(verify(str(merged), workers=1)) == []


def test_the_summary_names_some(rows: list[dict], build, tmp_path: Path, capsys):
    assert build(table_of(tmp_path, "rows", rows), tmp_path / "out", MERGE) == 0
    printed = capsys.readouterr().out
    assert "2 merged: 'RSTORAN WAN SHENG' is 'RESTORAN WAN SHENG', 'Restoran Wan Sheng.'" in printed


def test_without_the_option_all_names_stay(rows: list[dict], build, tmp_path: Path):
    assert build(table_of(tmp_path, "rows", rows), tmp_path / "out") == 0
    assert set(manifest_of(tmp_path / "out").vocabularies["layout"]) == set(NAMES)
    assert spellings_name(1) not in manifest_of(tmp_path / "out").checksums


def test_bytes_do_not_depend_on_order_or_workers(
    merged: Path, rows: list[dict], build, tmp_path: Path
):
    table = table_of(tmp_path, "rows", rows[::-1])
    assert build(table, tmp_path / "out", "--shards=2", MERGE, "--workers=2") == 0
    assert contents(tmp_path / "out") == contents(merged)


def test_a_dry_run_merges_too(rows: list[dict], build, tmp_path: Path, capsys):
    assert build(table_of(tmp_path, "rows", rows), tmp_path / "out", MERGE, "--dry-run") == 0
    assert "RESTORAN WAN SHENG: 12" in capsys.readouterr().out


def test_appended_spellings_become_the_old_name(
    copy: Path, rows: list[dict], build, tmp_path: Path
):
    new = [
        row(tmp_path, f"new-{number}", name)
        for number, name in enumerate(["RESTORAN WAN SHEN", "AEON.", "GIANT"])
    ]
    # Known receipts stay known: the layout that a build made is no label of an input.
    assert build(table_of(tmp_path, "new", [*new, *rows[8:12]]), copy, "--append") == 0
    manifest = manifest_of(copy)
    assert manifest.counts.known == 4
    assert manifest.vocabularies["layout"] == ("AEON", "RESTORAN WAN SHENG", "GIANT")
    everything = {**MERGED, "RESTORAN WAN SHEN": "RESTORAN WAN SHENG", "AEON.": "AEON"}
    assert spellings_of(copy) == everything
    assert compact_main([str(copy), "--workers=1"]) == 0
    assert spellings_of(copy) == everything
    assert manifest_of(copy).build_options["merge_spellings"] is True
    assert list(verify(str(copy), workers=1)) == []


def test_spellings_are_forgotten_with_the_first_receipt_of_their_layout(copy: Path, tmp_path: Path):
    file = tmp_path / "ids.txt"
    file.write_text("RSTORAN WAN SHENG-0\n")
    assert forget_main([str(copy), f"--ids={file}", "--workers=1", "--quiet"]) == 0
    assert spellings_of(copy) == {}
    assert not any(b"RSTORAN" in data for data in contents(copy).values())
    assert list(verify(str(copy), workers=1)) == []


def test_a_forgotten_layout_takes_no_spelling(rows: list[dict], build, tmp_path: Path):
    out = tmp_path / "out"
    lonely = row(tmp_path, "lonely", "GIANT HYPERMARKET")
    assert build(table_of(tmp_path, "rows", [*rows, lonely]), out, MERGE) == 0
    file = tmp_path / "ids.txt"
    file.write_text("lonely\n")
    assert forget_main([str(out), f"--ids={file}", "--workers=1", "--quiet"]) == 0
    assert "forgotten-1" in manifest_of(out).vocabularies["layout"]
    new = row(tmp_path, "new", "Forgotten 1")
    assert build(table_of(tmp_path, "new", [new]), out, "--append") == 0
    assert truth_of(out)["new"]["receipt/layout"] == "Forgotten 1"
    assert spellings_of(out).get("Forgotten 1") is None


def test_names_that_were_found_have_no_spellings(rows: list[dict], build, tmp_path: Path, capsys):
    with pytest.raises(SystemExit):
        build(table_of(tmp_path, "rows", rows), tmp_path / "out", MERGE, "--layout-from=text")
    message = "--merge-spellings is for names that people gave, and --layout-from is text"
    assert message in capsys.readouterr().err


def test_what_is_appended_is_merged_as_before(rows: list[dict], build, tmp_path: Path, capsys):
    table = table_of(tmp_path, "rows", rows)
    assert build(table, tmp_path / "out") == 0
    with pytest.raises(SystemExit):
        build(table, tmp_path / "out", "--append", MERGE)
    assert "--merge-spellings: the dataset" in capsys.readouterr().err
