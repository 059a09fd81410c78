"""Each second of a run counts in one category, whatever happens."""

import os
import re
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tensorflow")

from pipeline.training.ledger import CATEGORIES, Ledger, duration, process_start, time_sentence


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def counted(ledger: Ledger) -> dict[str, float]:
    """The categories that are not empty."""
    return {name: seconds for name, seconds in ledger.so_far()[0].items() if seconds}


def test_one_category_at_a_time():
    clock = Clock(1005.0)
    ledger = Ledger(began=1000.0, clock=clock)
    clock.now += 1
    ledger.enter("other")
    clock.now += 2
    with ledger.of("evaluation"):
        clock.now += 10
        with ledger.of("checkpoint"):
            clock.now += 3
        clock.now += 20
    clock.now += 4
    assert ledger.so_far() == (
        dict.fromkeys(CATEGORIES, 0.0)
        | {"start": 6, "other": 6, "evaluation": 30, "checkpoint": 3},
        1045.0,
    )


def test_an_error_ends_a_category():
    clock = Clock()
    ledger = Ledger(clock=clock)

    def fail() -> None:
        with ledger.of("checkpoint"):
            clock.now += 3
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    clock.now += 1
    assert counted(ledger) == {"checkpoint": 3, "start": 1}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"tracing": 2.0, "input": 3.0}, {"tracing": 2, "input": 3, "step": 5}),
        ({"tracing": 0.0, "input": 12.0}, {"input": 10}),  # more than there was
        ({"tracing": -1.0, "input": 1.0}, {"input": 1, "step": 9}),
        ({}, {"step": 10}),
    ],
)
def test_parts_of_steps(parts: dict[str, float], expected: dict[str, float]):
    """Graphs measure with a clock that somebody may set."""
    clock = Clock()
    ledger = Ledger(clock=clock)
    with ledger.steps() as found:
        clock.now += 10
        found.update(parts)
    assert counted(ledger) == expected


def test_what_was_lost_reaches_from_the_last_line_to_the_start():
    for until, lost in ((200.0, 30), (None, 0), (231.0, 0)):
        clock = Clock(235.0)
        ledger = Ledger(began=230.0, clock=clock)
        ledger.carry_on({"start": 5.0, "step": 20.0, "lost": 1.0}, until)
        expected = {"start": 10, "step": 20, "lost": 1 + lost}
        assert counted(ledger) == expected


def test_what_another_thread_reads_never_falls():
    clock = Clock()
    ledger = Ledger(clock=clock)
    clock.now += 1
    assert ledger.read()["start"] == 1
    with ledger.steps() as parts:
        clock.now += 10
        assert ledger.read()["step"] == 0  # some of it may be waiting for input
        parts["input"] = 4
    assert [ledger.read()[name] for name in ("start", "input", "step")] == [1, 4, 6]


MOMENTS = st.lists(
    st.tuples(st.sampled_from([*CATEGORIES, "end", "steps"]), st.floats(0, 1e6)), max_size=40
)


@given(MOMENTS, st.floats(0, 1e9))
def test_categories_add_up_to_the_wall_time(moments: list[tuple[str, float]], began: float):
    clock = Clock(began)
    ledger = Ledger(clock=clock)
    before = []
    for name, seconds in moments:
        clock.now += seconds
        if name == "end":
            if before:
                ledger.enter(before.pop())
        elif name == "steps":
            with ledger.steps() as parts:
                clock.now += seconds
                parts.update(input=seconds / 3, tracing=seconds / 7)
        else:
            before.append(ledger.enter(name))
    counts, now = ledger.so_far()
    assert now == clock.now
    assert sum(counts.values()) == pytest.approx(clock.now - began, abs=1e-3)
    assert min(counts.values()) >= 0


def test_the_kernel_knows_when_a_process_began():
    before = time.time()
    code = (
        "import time; time.sleep(0.5); from pipeline.training.ledger import process_start; "
        "print(process_start())"
    )
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    found = float(done.stdout)
    assert before - 0.02 <= found <= time.time() - 0.5
    assert process_start() < before


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (8.9, "8 s"),
        (192.0, "3 min 12 s"),
        (7200.0, "2 h 0 min"),
        (100_000.0, "1 d 3 h"),
    ],
)
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text


def test_the_sentence_has_the_longest_times_first():
    clock = Clock()
    ledger = Ledger(clock=clock)
    clock.now += 30
    with ledger.steps() as parts:
        clock.now += 162
        parts["input"] = 22
        parts["tracing"] = 0.2
    sentence = "time: 3 min 12 s: 73% steps, 16% start, 11% waiting for input"
    assert re.fullmatch(sentence, time_sentence(ledger.read()))
