"""Several sizes beside one: the arithmetic of the figures, and a small run."""

import functools
import json
from pathlib import Path

import pytest

pytest.importorskip("psutil")
pytest.importorskip("tensorflow")

from benchmarks import buckets
from benchmarks.buckets import ONE_SIZE, Run, figures, shown_pixels
from benchmarks.harness.timing import Round
from pipeline.config import InputConfig
from pipeline.records.info import load_info
from tests.support.dataset_factory import write_dataset

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture(scope="module")
def wide_and_long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("buckets") / "receipts"
    return write_dataset(folder, sizes=((64, 32), (48, 48), (64, 32), (64, 32)))


def test_pixels_that_show_receipts(wide_and_long: Path):
    info = load_info(wide_and_long)
    assert shown_pixels(info, InputConfig(height=64, width=64)) == 64 * 64 * (1 + 3 / 2) / 4
    config = InputConfig(buckets=((64, 64), (96, 48)))
    assert shown_pixels(info, config) == (64 * 64 + 3 * 96 * 48) / 4


def test_ratios_are_those_of_turns():
    def rounds(*speeds: float) -> list[Round]:
        return [
            Round(first_batch_s=1, images_per_s=speed, cpu_ms_per_image=1, peak_mb=1)
            for speed in speeds
        ]

    one = Run(images_per_s=[10, 20], seconds=[10, 20], scores=[0.2, 0.5])
    trainings = [
        {ONE_SIZE: one, "2 sizes": Run(images_per_s=[5, 10], seconds=[15, 30], scores=[0.6, 0.7])},
        {ONE_SIZE: one, "2 sizes": Run(images_per_s=[5, 10], seconds=[15, 30], scores=[0.3, 0.4])},
    ]
    shown = {ONE_SIZE: 1e6, "2 sizes": 3e6}
    inputs = {ONE_SIZE: rounds(100, 200), "2 sizes": rounds(50, 150)}
    first, second = figures(shown, inputs, trainings)
    assert (first["ratio"], first["ratio "], first["input Mpx/s"]) == (1, 1, 150)
    assert second["ratio"] == pytest.approx(3 * (0.5 + 0.75) / 2)
    assert (second["ratio "], second["training Mpx/s"]) == (1.5, 22.5)
    assert [first[f"time to {share}"] for share in ("80%", "90%", "100%")] == ["1.00"] * 3
    # To 0.4, in 15 and 30 seconds instead of 20; to 0.45 and 0.5, in 15 or never.
    assert second["time to 80%"] == "1.12"
    assert second["time to 90%"] == second["time to 100%"] == "0.75, 1 not reached"
    assert second["IoU"] == pytest.approx(0.55)
    never = [{ONE_SIZE: one, "2 sizes": trainings[1]["2 sizes"]}]
    assert figures(shown, inputs, never)[1]["time to 100%"] == "not reached"


def test_it_runs(
    wide_and_long: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    # Of the graphs of a training step, augmentations take most of the time to make.
    task = functools.partial(buckets.TextDetector, augment=False)
    monkeypatch.setattr(buckets, "TextDetector", task)
    options = ["--buckets", "2", "--size", "64", "64", "--split=train", "--filters=8"]
    effort = ["--steps=4", "--evaluate-every=2", "--global-batch-size=8", "--rounds=1"]
    measured = ["--batches=2", "--warmup=1", f"--json={tmp_path / 'figures.json'}"]
    assert buckets.main([str(wide_and_long), *options, *effort, *measured]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["images", "one size", "2 sizes"]
    rows = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert rows[1]["kpx/image"] > 1.4 * rows[0]["kpx/image"]
    assert all(row["training Mpx/s"] > 0 for row in rows)


def test_a_split_without_records_is_refused(
    wide_and_long: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        buckets.main([str(wide_and_long)])
    assert "split 'validation' of" in capsys.readouterr().err
