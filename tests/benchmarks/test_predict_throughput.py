"""The comparison of predictions with a loop of tf.data: its arithmetic."""

import pytest

from benchmarks.predict_throughput import JOB, LOOP, Runs, summarize


def test_ratios_are_of_medians_with_and_without_the_start_up():
    # (elapsed, processor) seconds of 20 images and of 120.
    runs: Runs = {
        LOOP: [((4.0, 5.0), (12.0, 21.0)), ((5.0, 6.0), (30.0, 16.0)), ((6.0, 7.0), (10.0, 27.0))],
        JOB: [((8.0, 9.0), (24.0, 17.0)), ((10.0, 7.0), (20.0, 19.0)), ((2.0, 3.0), (40.0, 99.0))],
    }
    assert summarize(runs, few=20, images=120) == pytest.approx(
        {
            "tf.data loop, images/s": 10.0,  # 120 in 12 s
            "beam_jobs.predict, images/s": 5.0,  # 120 in 24 s
            "tf.data loop without start-up, images/s": 12.5,  # 100 in 8 s, of 8, 25 and 4
            "beam_jobs.predict without start-up, images/s": 6.25,  # 100 in 16 s, of 16, 10 and 38
            "tf.data loop without start-up, CPU ms/image": 160.0,  # 16 s, of 16, 10 and 20
            "beam_jobs.predict without start-up, CPU ms/image": 120.0,  # 12 s, of 8, 12 and 96
            "ratio": 0.5,
            "ratio without start-up": 0.5,
            "ratio without start-up, by CPU time": 160 / 120,
        }
    )
