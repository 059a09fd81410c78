"""beam_jobs.compare, on datasets with a planted shift."""

import json
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.compare import main
from tests.support.receipts import read_table, write_receipts, write_table

OPTIONS = ("--label=total:float", "--label=language:category", "--shards=2")
BEFORE = {"beta": 12, "delta": 6, "kiosk": 2}


@pytest.fixture(scope="module")
def datasets(build, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A dataset of two versions, and one of other layouts with totals ten times as high."""
    folder = tmp_path_factory.mktemp("datasets")
    table = write_receipts(folder, {**BEFORE, "zeta": 9, "eta": 1})
    rows = [
        {**row, "layout": {"zeta": "aral", "eta": "beta"}.get(row["layout"], row["layout"])}
        for row in read_table(table)
    ]
    old = sum(BEFORE.values())
    shifted = [
        {**row, "total": 10 * row["total"]} for row in rows if row["layout"] in ("aral", "delta")
    ]
    tables = {
        name: write_table(folder / f"{name}.jsonl", chosen)
        for name, chosen in (("old", rows[:old]), ("all", rows), ("shifted", shifted))
    }
    grown = folder / "grown"
    assert build(tables["old"], grown, *OPTIONS) == 0
    assert build(tables["all"], grown, "--append") == 0
    assert build(tables["shifted"], folder / "shifted", *OPTIONS) == 0
    return {"grown": grown, "shifted": folder / "shifted"}


def compared(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> tuple:
    """Returns the lines printed, and what was written as JSON."""
    assert main([*arguments, f"--json={folder / 'found.json'}"]) == 0
    return capsys.readouterr().out.splitlines(), json.loads((folder / "found.json").read_text())


def test_a_version_beside_the_one_before(
    datasets: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    grown = datasets["grown"]
    lines, found = compared(capsys, tmp_path, str(grown), "--movers=2")
    assert lines[:2] == [
        f"{grown}, version 2, against {grown}, version 1",
        "  records         20 before, 30 now",
    ]
    layout = found["categories"]["layout"]
    assert layout["new"] == ["aral"]
    assert layout["vanished"] == []
    assert layout["l_infinity"] == pytest.approx(0.3)  # 9 of 30 are of a layout that is new
    assert [share["value"] for share in layout["shares"]] == ["aral", "beta", "delta", "kiosk"]
    assert layout["shares"][1] == {
        "value": "beta",
        "before": pytest.approx(0.6),
        "now": pytest.approx(13 / 30),
    }
    start = next(number for number, line in enumerate(lines) if line.startswith("layout:"))
    assert lines[start : start + 4] == [
        f"layout: L-infinity 0.3000, Jensen-Shannon {layout['jensen_shannon']:.4f}",
        "  new             1: aral",
        "  aral                        0.00% before,   30.00% now",
        "  beta                       60.00% before,   43.33% now",
    ]
    assert (found["records_before"], found["records_now"]) == (20, 30)


def test_another_dataset_whose_totals_have_shifted(
    datasets: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = (str(datasets["shifted"]), f"--against={datasets['grown']}")
    lines, found = compared(capsys, tmp_path, *arguments)
    assert found["categories"]["layout"]["vanished"] == ["beta", "kiosk"]
    total = found["numbers"]["receipt/total"]
    assert total["mean_now"] > 5 * total["mean_before"]
    assert total["jensen_shannon"] > 0.9
    assert list(found["numbers"]).index("receipt/total") < 3
    assert any(line.startswith("  receipt/total ") for line in lines)


def test_a_version_beside_itself_has_no_drift(
    datasets: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    _, found = compared(capsys, tmp_path, str(datasets["grown"]), "--version=1", "--against=1")
    distances = [
        *(each["jensen_shannon"] for each in found["numbers"].values()),
        *(each["jensen_shannon"] for each in found["categories"].values()),
        *(each["l_infinity"] for each in found["categories"].values()),
    ]
    assert len(distances) > 8
    assert set(distances) == {0.0}


def test_the_splits_add_up(
    datasets: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    records = 0
    for split in ("train", "validation"):
        _, found = compared(capsys, tmp_path, str(datasets["grown"]), f"--split={split}")
        records += found["records_now"]
    assert records == 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{grown}", "--version=1"], "has no version before 1: name another dataset by --against"),
        (["{grown}", "--against=7"], "no version 7"),
        (["{grown}", "--against={grown}/nothing"], "nothing"),
        (["{grown}", "--split=odd"], "has no split 'odd': choose one of train, validation"),
        (["{grown}", "--movers=-1"], "--movers must be at least 0, got -1"),
        (["{grown}", "--json={grown}/no/folder"], "no/folder"),
    ],
)
def test_nonsense_is_an_error(
    datasets: dict[str, Path],
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(SystemExit) as ended:
        main([each.format(**datasets) for each in arguments])
    assert ended.value.code == 2
    words = capsys.readouterr().err
    assert message in words
    assert "Traceback" not in words


def test_a_damaged_summary_is_named(
    datasets: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    path = datasets["shifted"] / "versions/00001/summary.json"
    text = path.read_text()
    path.write_text(text.replace("records", "recorda", 1))
    try:
        with pytest.raises(SystemExit):
            main([str(datasets["shifted"]), f"--against={datasets['grown']}"])
    finally:
        path.write_text(text)
    assert f"{path} has another checksum than the manifest says" in capsys.readouterr().err
