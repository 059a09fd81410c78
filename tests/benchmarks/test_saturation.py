"""Waits of a simulated accelerator, on a fake clock and by slowing stages down."""

import json
from pathlib import Path

import pytest

pytest.importorskip("psutil")
pytest.importorskip("tensorflow")

from benchmarks import saturation
from benchmarks.saturation import limiting_stage, simulate, verdict
from tests.benchmarks.harness.test_timing import Clock

pytestmark = pytest.mark.usefixtures("in_this_process")


def test_waiting_is_what_steps_do_not_use():
    clock = Clock()
    batches = clock.batches(0.0, [0.5, 1.25, 0.75, 2.0])
    produced = iter([5, 6, 7, 8])

    def sleep(seconds: float) -> None:
        clock.now_s += seconds

    steps = simulate(
        batches, 1.0, 4, produced=lambda: next(produced), consumed=3, clock=clock, sleep=sleep
    )
    # The second batch comes late, the third while its predecessor is worked on, the fourth late.
    assert steps.waits_ms == (500.0, 250.0, 0.0, 1000.0)
    assert steps.wait_share == 1.75 / 5.75
    assert steps.ready == (2, 2, 2, 2)


RATES = {"read": 4000.0, "decode": 1000.0, "batch": 950.0, "device": 900.0}


@pytest.mark.parametrize(
    ("changed", "limiting"),
    [
        ({}, "decode"),
        ({"read": 905.0, "decode": 900.0}, "read"),
        ({"batch": 500.0, "device": 490.0}, "batch"),
        ({"device": 300.0}, "device"),
    ],
)
def test_the_stage_that_adds_most_limits(changed: dict[str, float], limiting: str):
    assert limiting_stage(RATES | changed) == limiting


def test_sentences():
    assert verdict(RATES, wanted=600, cpu_ms_per_image=2.0, replicas=2) == (
        "The step limits: the input pipeline could give 1.50 times as much; a replica needs 0.60 "
        "cores for its 300 images/s."
    )
    assert verdict(RATES, wanted=1200, cpu_ms_per_image=2.0, replicas=1) == (
        "Decoding limits: 900 of 1,200 images/s; a replica needs 2.40 cores for its 1,200 "
        "images/s, and images of 75% of the pixels would do on these."
    )
    reading = verdict(
        RATES | {"read": 905.0, "decode": 903.0}, wanted=1200, cpu_ms_per_image=2.0, replicas=1
    )
    assert reading.startswith("Reading limits: ")
    assert reading.endswith("longer blocks, more parallel reads or faster storage would help.")
    augmentation = verdict(
        RATES | {"batch": 500.0, "device": 490.0}, wanted=1200, cpu_ms_per_image=2, replicas=1
    )
    assert augmentation.startswith("Augmentation limits: ")
    assert augmentation.endswith("augmentation on the device would help.")


@pytest.mark.parametrize(
    ("slow", "sentence"),
    [
        (["--slow-reading=4", "--step-ms=1"], "Reading limits: "),
        (["--slow-decoding=10", "--step-ms=1"], "Decoding limits: "),
        (["--step-ms=500", "--replicas=2", "--batches=2"], "The step limits: "),
    ],
    ids=["reading", "decoding", "step"],
)
def test_it_names_what_was_slowed_down(
    directory: Path,
    tmp_path: Path,
    slow: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
):
    figures, plot = tmp_path / "figures.json", tmp_path / "plot.png"
    arguments = [str(directory), "--global-batch-size=8", "--size", "32", "32", "--rounds=1"]
    arguments += ["--batches=6", "--warmup=2", "--json", str(figures), "--plot", str(plot), *slow]
    assert saturation.main(arguments) == 0
    printed = capsys.readouterr().out
    assert sentence in printed
    written = json.loads(figures.read_text())
    assert written["verdict"] in printed
    assert set(written["stages"]) == set(saturation.STAGES)
    assert len(written["steps"]["ready"]) == len(written["steps"]["waits_ms"]) > 0
    assert plot.stat().st_size > 5000


@pytest.mark.parametrize("option", ["--step-ms", "--images-per-s", "--load"])
def test_a_speed_of_nothing(option: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        saturation.main(["nowhere", option, "0"])
    assert f"{option} must be above 0, got 0.0" in capsys.readouterr().err
