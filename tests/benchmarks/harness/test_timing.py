"""The benchmarks' clockwork, on a clock that only moves when it is told to."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("psutil")

from benchmarks.harness.timing import (
    Contender,
    Effort,
    PeakMemory,
    Result,
    Round,
    by_turns,
    look,
    machine,
    processor_s,
    table,
    to_json,
)


class Clock:
    """Seconds that pass when somebody works."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def batches(self, start_s: float, costs_s: list[float]) -> Iterator[int]:
        """An iterator that takes a while to start, and then so long for each batch."""
        self.now_s += start_s
        for number, cost_s in enumerate(costs_s):
            self.now_s += cost_s
            yield number


def test_only_the_batches_behind_first_and_warmup_count():
    clock, processor = Clock(), Clock()
    costs_s = [5.0, 1.0, 1.0, 0.5, 0.25, 0.25, 99.0]
    batches = zip(clock.batches(2.0, costs_s), processor.batches(1.0, costs_s), strict=True)
    seen_s = []

    def aside() -> None:
        seen_s.append(clock.now_s)
        for each in (clock, processor):
            each.now_s += 1000

    figures = look(
        lambda: batches,
        Effort(batch_size=10, batches=3, warmup=2),
        clock=clock,
        processor=processor,
        aside=aside,
    )
    assert figures == {"first_batch_s": 7.0, "images_per_s": 30.0, "cpu_ms_per_image": 1000 / 30}
    assert seen_s == [107.0, 1110.0]


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 0}, {"batches": 0}, {"warmup": -1}], ids=lambda each: next(iter(each))
)
def test_an_effort_needs_something_to_measure(wrong: dict[str, int]):
    with pytest.raises(ValueError, match="must be at least"):
        Effort(**{"batch_size": 1, "batches": 1, **wrong})


def test_a_result_is_the_median_of_its_rounds():
    rounds = [
        Round(first_batch_s=first, images_per_s=speed, cpu_ms_per_image=cpu, peak_mb=peak)
        for first, speed, cpu, peak in [(1, 10, 3, 50), (9, 30, 1, 70), (2, 11, 2, 60)]
    ]
    assert Result.of(rounds) == Result(
        images_per_s=11,
        lowest=10,
        highest=30,
        first_batch_s=2,
        cpu_ms_per_image=2,
        peak_mb=70,
    )


def numbers(start: int, given: str | None = None) -> Iterator[int]:
    """A contender; each process has an environment of its own."""
    assert os.environ.get("GIVEN") == given
    os.environ["SEEN"] = os.environ.get("SEEN", "") + "x"
    assert os.environ["SEEN"] == "x"
    return itertools.count(start)


def test_contenders_take_turns_in_processes_of_their_own(capsys: pytest.CaptureFixture[str]):
    contender = Contender(
        function="tests.benchmarks.harness.test_timing:numbers", options={"start": 3}
    )
    given = replace(
        contender, options={"start": 3, "given": "a"}, environment={"GIVEN": "a", "SEEN": ""}
    )
    effort = Effort(batch_size=4, batches=5, warmup=1)
    found = by_turns({"a": given, "b": contender}, {"a": effort, "b": effort}, rounds=2)
    assert "GIVEN" not in os.environ
    assert [len(each) for each in found.values()] == [2, 2]
    assert all(each.images_per_s > 0 < each.peak_mb for each in found["a"] + found["b"])
    lines = [line.split(" images/s")[0].split()[:5] for line in capsys.readouterr().err.split("\n")]
    assert [line[4] for line in lines if line] == ["a", "b", "a", "b"]


def print_and_wait() -> None:
    print(os.getpid(), flush=True)
    time.sleep(600)


def test_a_process_ends_with_the_killed_one_that_started_it():
    import psutil

    code = (
        "from benchmarks.harness.timing import in_new_process\n"
        "from tests.benchmarks.harness.test_timing import print_and_wait\n"
        "in_new_process(print_and_wait)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    child.wait(60)  # it raises if the process lives on


def test_memory_and_processor_time_are_those_of_children_too():
    code = (
        "import sys; block = bytearray(200_000_000); sum(range(3_000_000)); "
        "print('up', flush=True); sys.stdin.read()"
    )
    before_s = processor_s() - time.process_time()
    with PeakMemory(every_s=0.01) as memory:
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout
        child.stdout.readline()
        during_s = processor_s() - time.process_time()
        deadline = time.monotonic() + 30
        while memory.peak_bytes < 200_000_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        child.communicate()
    assert memory.peak_bytes >= 200_000_000
    assert during_s - before_s > 0.02, "what the child took, beside this process"


def test_memory_of_descendants_alone():
    own = bytearray(b"x") * 100_000_000
    with PeakMemory() as all_memory, PeakMemory(own=False) as memory_of_others:
        assert len(own) == 100_000_000
    assert all_memory.peak_bytes - memory_of_others.peak_bytes > 100_000_000


def test_tables_and_files(tmp_path):
    rows = [
        {"name": "a", "images/s": 1234.5, "share": 0.12345},
        {"name": "bc", "images/s": 7, "share": 1.0},
    ]
    assert table(rows).splitlines() == [
        "name  images/s  share",
        "a        1,234  0.123",
        "bc           7      1",
    ]
    written = json.loads(to_json({"figures": [1.5]}))
    assert written["figures"] == [1.5]
    assert (
        set(written["machine"])
        == set(machine())
        == {"processor", "cores", "memory", "python", "date"}
    )
