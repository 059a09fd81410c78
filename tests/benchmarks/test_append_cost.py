"""The cost of an append: its arithmetic, and a small run."""

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("psutil")

from benchmarks import append_cost


def test_start_up_is_taken_off():
    costs = {"build": 100.0, "append": 8.0, "build of one receipt": 4.0}
    assert append_cost.ratio(costs | {"append of one receipt": 3.2}) == pytest.approx(0.05)


def test_it_runs(capsys: pytest.CaptureFixture[str]):
    sizes = ["--rows=40", "--appended=0.05", "--workers=1", "--records=30000", "--new=1000"]
    assert append_cost.main(sizes) == 0
    printed = capsys.readouterr().out
    assert "40 receipts, 5.000% appended, 1 processes; seconds" in printed
    assert "append / build" in printed
    assert "lookups, MB                    1.44" in printed


def test_nonsense():
    with pytest.raises(SystemExit, match="--appended must be above 0, and at most 1, got 2"):
        append_cost.main(["--appended=2"])
