"""The simulation of scaling: its arithmetic, and a run that measures."""

import json
from pathlib import Path

import pytest

pytest.importorskip("psutil")

from benchmarks import scaling
from benchmarks.harness.stragglers import Delays
from benchmarks.scaling import Replica, draw, speedups

REPLICA = Replica(step_s=0.1, input_s=0.05, gradient_bytes=1e8, latency_s=1e-4, bytes_per_s=1.25e9)
GIVEN = ("--step-ms=100", "--input-ms=50", "--gradient-mb=100", "--latency-us=100")


def test_an_all_reduce_goes_around_a_ring():
    assert REPLICA.all_reduce_s(1) == 0
    assert REPLICA.all_reduce_s(2) == pytest.approx(2e-4 + 0.08)
    assert REPLICA.all_reduce_s(1000) == pytest.approx(0.1998 + 0.15984)


def test_lock_step_waits_for_the_all_reduce():
    found = speedups(REPLICA, Delays(probability=0), 4, backup_share=0)
    assert found["lock-step"] == pytest.approx(4 * 0.1 / (0.1 + REPLICA.all_reduce_s(4)))
    assert found["late"] == pytest.approx(found["lock-step"])


def test_input_that_is_slower_than_the_step_limits():
    slow = Replica(step_s=0.1, input_s=0.3, gradient_bytes=0, latency_s=0, bytes_per_s=1)
    found = speedups(slow, Delays(probability=0), 8, backup_share=0)
    assert found["lock-step"] == pytest.approx(8)


def test_backup_workers_help_where_gradients_are_late():
    found = speedups(REPLICA, Delays(), 100, backup_share=0.05)
    assert found["backups"] == 5
    assert found["late"] < 0.3 * found["lock-step"]
    assert found["late, servers, backups"] > 1.5 * found["late, servers"]


def test_parameter_servers_take_as_long_for_any_number_of_replicas():
    punctual = Delays(probability=0)
    for count in (1, 1000):
        found = speedups(REPLICA, punctual, count, backup_share=0)
        expected = count * 0.1 / (0.1 + 2 * (1e-4 + 0.08))
        assert found["late, servers"] == pytest.approx(expected)
        assert found["late, servers, backups"] == pytest.approx(expected)


def test_a_picture_shows_every_speed_up_and_what_was_reported():
    counts = [1, 10, 100]
    rows = [
        {"replicas": count, **speedups(REPLICA, Delays(), count, backup_share=0.05)}
        for count in counts
    ]
    [axes] = draw(rows).axes
    lines = {
        str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata()))
        for line in axes.get_lines()
    }
    names = set(rows[0]) - {"replicas", "backups"}
    assert lines == {
        "perfect": (counts, counts),
        **{name: (counts, [row[name] for row in rows]) for name in names},
        "TensorFlow, 2016: 56 on 100 GPUs": ([100], [56]),
    }
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(lines)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--replicas=0",), "--replicas must be at least 1, got 0"),
        (("--backup-share=2",), "--backup-share must be 0 to 1, got 2.0"),
        (("--probability=2",), "--probability must be 0 to 1, got 2.0"),
        (("--gbit-per-s=0",), "bytes_per_s must be a number of at least 0, got 0.0"),
    ],
)
def test_errors(options: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        scaling.main(["nowhere", *GIVEN, "--gbit-per-s=10", *options])
    assert sentence in capsys.readouterr().err


def test_figures_of_other_machines_need_no_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    written, plot = tmp_path / "figures.json", tmp_path / "plot.png"
    files = ("--json", str(written), "--plot", str(plot))
    assert scaling.main(["nowhere", *GIVEN, "--gbit-per-s=10", "--replicas", "1", "9", *files]) == 0
    one, nine = json.loads(written.read_text())["results"]
    assert one["lock-step"] == pytest.approx(1)
    assert 3 < nine["lock-step"] < 9
    shown = capsys.readouterr().out
    assert "twice the replicas take twice the records" in shown
    assert '"servers": instead of a ring' in shown
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_it_measures_what_is_not_given(directory: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("tensorflow")
    task = "--task=tests.support.tiny_task:TinyTask"
    assert scaling.main([str(directory), task, "--batch-size=8", "--steps=3"]) == 0
    shown = capsys.readouterr().out
    assert "gradients of 0.0 MB" in shown
    assert "reported by TensorFlow in 2016: 56 on 100 GPUs" in shown
