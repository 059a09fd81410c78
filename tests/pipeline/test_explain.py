"""The description of a plan before a training run."""

from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from pipeline.config import Balance, InputConfig
from pipeline.explain import explain_plan, main
from tests.support.dataset_factory import write_dataset


def test_natural_shares(directory: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--global-batch-size=8", "--replicas=4", "--workers=2"]
    assert main([str(directory), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == [
        f"split train of {directory}, version 1: 32 records",
        "an epoch is 4 steps of 8 records",
        "  workers: 2, each makes 4 batches of 4 records",
        "  replicas: 4, each gets 2 records a step",
        "            32 records come once",
    ]
    size_bytes = sum(path.stat().st_size for path in directory.glob("receipts-*.tfrecord"))
    assert lines[5] == (
        f"  {size_bytes / 1e6:.1f} MB are read per epoch, {size_bytes / 2e6:.1f} MB by each worker"
    )
    assert lines[7].split() == ["20", "20.0", "1.00", "5.000", "1.00", "alpha"]
    assert lines[10].split() == ["1", "1.0", "1.00", "0.250", "1.00", "omega"]
    assert lines[11].startswith("  fairness: in 4 steps no batch is more than 0.750 records off")


def test_balance_leaves_out_and_repeats(directory: Path):
    config = InputConfig(balance=Balance(alpha=0, repeat_cap=4))
    lines = explain_plan(directory, global_batch_size=8, config=config).splitlines()
    # "omega" and "gamma" reach the cap, the others share the other 20 slots.
    counted = [line.split(maxsplit=2) for line in lines[4:] if "record" in line.split()[1]]
    counted = [words for words in counted if words[0].isdigit()]
    assert sum(int(words[0]) for words in counted) == 32
    assert ["3", "records", "come 4 times"] in counted
    skipped = "are skipped in this epoch (others are skipped in the next)"
    assert skipped in [words[2] for words in counted]


def test_phases_are_told_one_by_one(directory: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--global-batch-size=8", "--balance-repeat-cap=4"]
    assert main([str(directory), *options, "--balance-alpha=1@0,0@2000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = ["from step 0 to step 1,999, with alpha 1", "from step 2,000 on, with alpha 0"]
    bounds = [*map(lines.index, titles), len(lines)]
    for alpha, (start, stop) in zip((1, 0), pairwise(bounds), strict=True):
        assert main([str(directory), *options, f"--balance-alpha={alpha}"]) == 0
        alone = capsys.readouterr().out.splitlines()
        assert lines[start + 1 : stop] == alone[4:]
        assert lines[:4] == alone[:4]


def test_buckets(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = write_dataset(tmp_path / "receipts", sizes=((64, 32), (48, 48), (64, 32), (64, 32)))
    options = ["--global-batch-size=8", "--buckets=2", "--height=64", "--width=64"]
    assert main([str(directory), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    # Padded to 64 × 64, a quarter of the images fills all of it, and three quarters the half.
    assert lines[4].endswith("% of their size on average, and would fill 62% of 64 × 64")
    assert int(lines[4].split()[2].removesuffix("%")) > 85
    assert lines[6].split() == ["8", "1.0", "steps", "64", "×", "64"]
    assert lines[7].split() == ["24", "3.0", "steps", "96", "×", "48"]
    assert lines[-1].split() == ["1", "1.0", "1.00", "0.250", "1.00", "omega"]


def test_one_is_singular(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts", counts={"a": 3}, shards=1)
    text = explain_plan(directory, global_batch_size=2)
    assert "an epoch is 1 step of 2 records" in text
    assert "each makes 1 batch of 2 records" in text
    assert " 1 record is skipped in this epoch" in text
    assert "in 1 step no batch" in text
    text = explain_plan(directory, global_batch_size=1)
    assert "an epoch is 3 steps of 1 record\n" in text
    assert "each gets 1 record a step" in text


def test_blocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = write_dataset(tmp_path / "receipts", counts={"a": 30}, shards=3)
    assert main([str(directory), "--global-batch-size=8", "--block-length=4"]) == 0
    out = capsys.readouterr().out
    assert "24 records come once" in out
    assert "6 records are skipped in this epoch" in out


def test_the_environment_names_the_dataset(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("TILLROLL_DATA_DIR", str(directory))
    assert main(["--global-batch-size=8"]) == 0
    assert f"split train of {directory}, version 1: " in capsys.readouterr().out
    monkeypatch.delenv("TILLROLL_DATA_DIR")
    with pytest.raises(SystemExit):
        main(["--global-batch-size=8"])
    assert "set the environment variable TILLROLL_DATA_DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--replicas=3", "--workers=2"], "3 replicas can't be shared evenly by 2 workers"),
        (["--replicas=7"], "can't be divided by 7 replicas: choose a multiple of 7"),
        (["--replicas=0"], "error: --replicas must be at least 1, got 0"),
        (["--workers=0"], "error: --workers must be at least 1, got 0"),
        (["--balance-alpha=2"], "error: --balance-alpha must be 0 (every layout alike) to 1"),
        (["--block-length=0"], "error: --block-length must be"),
        (["--split=test"], "has no split 'test'"),
        (["--split=validation"], "is empty: choose another"),
    ],
)
def test_errors(
    directory: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        main([str(directory), "--global-batch-size=24", *options])
    assert sentence in capsys.readouterr().err
