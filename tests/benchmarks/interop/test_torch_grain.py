"""The check of batches in PyTorch and Grain, with a reader that needs neither."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("psutil")
pytest.importorskip("tensorflow")

from benchmarks.interop import torch_grain
from benchmarks.interop.torch_grain import main
from pipeline import BatchSampler, Records

STEPS = 5


def read(records: Records, sampler: BatchSampler) -> Iterator[list[str]]:
    for positions in sampler:
        yield [records[position]["image/source_id"] for position in positions]


def read_in_another_order(records: Records, sampler: BatchSampler) -> Iterator[list[str]]:
    return (batch[::-1] for batch in read(records, sampler))


def read_too_few(records: Records, sampler: BatchSampler) -> Iterator[list[str]]:
    return (batch for batch, _ in zip(read(records, sampler), range(STEPS - 1), strict=False))


def test_every_batch_of_every_rank_is_compared(
    directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(torch_grain, "STEPS", STEPS)
    arguments = [str(directory), str(tmp_path / "ids.json")]
    assert main(["expect", *arguments]) == 0

    readers = {"right": read}
    monkeypatch.setattr(torch_grain, "_READERS", readers)
    assert main(["check", *arguments]) == 0

    readers |= {"mixed": read_in_another_order, "short": read_too_few}
    assert main(["check", *arguments]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[-19:-1]]
    assert lines == [
        [reader, alpha, str(ranks), str(STEPS * ranks), str(different * ranks)]
        for reader, different in (("right", 0), ("mixed", STEPS), ("short", 1))
        for alpha in ("1", "0.3")
        for ranks in (1, 2, 3)
    ]
