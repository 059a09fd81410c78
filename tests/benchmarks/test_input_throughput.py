"""The stage ladder and sweeps: their arithmetic, and a small run of each."""

import json
import socket
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("psutil")
pytest.importorskip("tensorflow")

from benchmarks import input_throughput
from benchmarks.harness import contenders
from benchmarks.harness.addresses import reserved_addresses
from benchmarks.harness.contenders import Training, reader_of, training
from benchmarks.harness.timing import Contender, Result
from benchmarks.input_throughput import (
    SWEEPS,
    from_allocator,
    ladder_rows,
    others,
    reader_lines,
    sweep_rows,
    swept,
)
from pipeline.config import InputConfig, Reading
from tests.support.data_services import data_services
from tests.support.dataset_factory import write_dataset

pytestmark = pytest.mark.usefixtures("in_this_process")


def result(images_per_s: float, cpu_ms: float) -> Result:
    return Result(
        images_per_s=images_per_s,
        lowest=images_per_s - 1,
        highest=images_per_s + 1,
        first_batch_s=1.0,
        cpu_ms_per_image=cpu_ms,
        peak_mb=300.0,
    )


def test_shares_of_stages():
    rows = ladder_rows(
        {"read": result(1000, 1.0), "decode": result(250, 3.0), "device": result(200, 4.0)}
    )
    assert [row["up to"] for row in rows] == ["read", "decode", "device"]
    assert [row["adds ms/image"] for row in rows] == [1.0, 3.0, 1.0]
    assert [row["share"] for row in rows] == pytest.approx([0.2, 0.6, 0.2])
    assert [row["share of CPU"] for row in rows] == [0.25, 0.5, 0.25]


def test_ratios_of_a_sweep():
    rows = sweep_rows("channels", {"3": result(200, 4.0), "1": result(300, 2.0)})
    assert [row["channels"] for row in rows] == ["3", "1"]
    assert [row["ratio"] for row in rows] == [1.0, 1.5]


@pytest.mark.parametrize("name", sorted({*SWEEPS} - {"data-dir", "allocator", "services"}))
def test_a_sweep_changes_its_option_alone(name: str):
    run = Training(data_dir="there", config=InputConfig(), batch_size=32)
    changed = {
        "batch-size": Training(data_dir="there", config=InputConfig(), batch_size=1),
        "replicas": run,
        "workers": run,
        "channels": Training(data_dir="there", config=InputConfig(channels=1), batch_size=32),
        "size": Training(data_dir="there", config=InputConfig(height=1, width=1), batch_size=32),
        "parallel-reads": Training(
            data_dir="there", config=InputConfig(reading=Reading(parallel_reads=1)), batch_size=32
        ),
        "parallel-decodes": Training(
            data_dir="there", config=InputConfig(parallel_decodes=1), batch_size=32
        ),
        "block-length": run,
    }
    assert swept(run, name, "1") == changed[name]
    assert swept(run, name, "3" if name == "channels" else "2") != changed[name]


def test_a_sweep_of_datasets(directory: Path):
    run = Training(data_dir="there", config=InputConfig(), batch_size=32)
    assert swept(run, "data-dir", str(directory)) == replace(run, data_dir=str(directory))
    with pytest.raises(FileNotFoundError, match="holds no finished dataset"):
        swept(run, "data-dir", "nowhere")
    with pytest.raises(ValueError, match="--values of channels must be whole numbers, got 'gray'"):
        swept(run, "channels", "gray")


def test_a_sweep_of_allocators(tmp_path: Path):
    run = Training(data_dir="there", config=InputConfig(), batch_size=32)
    contender = Contender(function="there:function", options={"run": run})
    assert swept(run, "allocator", "system") == run
    assert from_allocator(contender, "tensorflow") == contender
    chosen = from_allocator(contender, "system")
    assert chosen == replace(contender, environment={"TF_CPU_ALLOCATOR_USE_BFC": "false"})
    library = tmp_path / "libmalloc.so"
    with pytest.raises(
        ValueError, match=r"libmalloc.so' is not a file: give tensorflow or system, or"
    ):
        from_allocator(contender, str(library))
    library.touch()
    assert from_allocator(contender, str(library)).environment == {
        "LD_PRELOAD": str(library),
        "TF_CPU_ALLOCATOR_USE_BFC": "false",
    }


def test_a_sweep_of_services():
    run = Training(data_dir="there", config=InputConfig(), batch_size=32)
    assert swept(run, "services", "here") == run
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert swept(run, "services", address) == replace(run, services=(address,))
        with pytest.raises(ValueError, match="services are measured with one worker, not 2"):
            swept(replace(run, workers=2), "services", address)
    with pytest.raises(ValueError, match="'there' is no HOST:PORT"):
        swept(run, "services", "there")


SMALL = ("--size", "32", "32", "--global-batch-size=8", "--rounds=1", "--batches=3", "--warmup=1")


def test_the_ladder_runs(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    figures, plot = tmp_path / "figures.json", tmp_path / "plot.png"
    files = ["--json", str(figures), "--plot", str(plot)]
    assert input_throughput.main([str(directory), *SMALL, *files, "--augment", "Rotate"]) == 0
    written = json.loads(figures.read_text())
    stages = ["plan", "read", "parse", "decode", "batch", "augment", "device"]
    assert [row["up to"] for row in written["results"]] == stages
    assert all(row["images/s"] > 0 for row in written["results"])
    assert sum(row["share"] for row in written["results"]) == pytest.approx(1)
    [this, sequence, memory, *ceiling] = written["beside"]
    assert (this["beside"], this["ratio"]) == ("this", 1)
    assert sequence["beside"] == "in sequence, shuffle buffer of 1,000"
    assert memory["beside"] == "decoding alone, records in memory"
    assert all(each["images/s"] > 0 for each in (sequence, memory, *ceiling))
    shown = capsys.readouterr().out
    assert "up to" in shown
    assert sequence["beside"] in shown
    assert bool(ceiling) == (not written["missing"])
    assert written["missing"] in shown
    assert plot.stat().st_size > 5000


def test_a_sweep_runs(directory: Path, tmp_path: Path):
    figures = tmp_path / "figures.json"
    arguments = ["--sweep", "replicas", "--values", "1", "2", "--json", str(figures)]
    assert input_throughput.main([str(directory), *SMALL, *arguments]) == 0
    results = json.loads(figures.read_text())["results"]
    assert [row["replicas"] for row in results] == ["1", "2"]


def test_a_ceiling_of_decoding_is_no_ceiling_of_pixels(tmp_path: Path):
    directory = write_dataset(tmp_path / "receipts", raw=True)
    run = Training(data_dir=str(directory), config=InputConfig(), batch_size=8)
    found, missing = others(run, tmp_path)
    assert len(found) == 2
    assert missing == "no ceiling: pixels need no decoding"


def test_a_ladder_over_pixels_in_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = write_dataset(tmp_path / "receipts", raw=True)
    arguments = [str(directory), *SMALL, "--sweep", "parallel-reads", "--values", "1", "2"]
    assert input_throughput.main(arguments) == 0
    assert "reader: pixels come from shards in memory\n" in capsys.readouterr().out
    run = Training(data_dir=str(directory), config=InputConfig(), batch_size=8)
    mapped, parsed = (
        next(training(each, stage="decode")) for each in (run, replace(run, order="memory"))
    )
    assert mapped[0].shape == parsed[0].shape == (8, 256, 256, 3)
    slow = replace(run, slow_reading_ms=1.0)
    assert reader_of(slow).endswith("TensorFlow parses the records, as they come slower")


def test_data_services_make_the_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    directory = write_dataset(tmp_path / "receipts", raw=True)
    with data_services(directory, tmp_path, 1) as [service]:
        values = ["here", service.address]
        arguments = [str(directory), *SMALL, "--sweep", "services", "--values", *values]
        assert input_throughput.main(arguments) == 0
    shown = capsys.readouterr().out
    assert "here: reader: pixels come from shards in memory\n" in shown
    assert "TensorFlow parses the records, as the dataset is portable\n" in shown


def test_runs_with_several_readers_have_a_line_each(directory: Path, tmp_path: Path):
    pixels = write_dataset(tmp_path / "receipts", raw=True)
    runs = {
        name: Training(data_dir=str(path), config=InputConfig(), batch_size=8)
        for name, path in {"a": directory, "b": pixels}.items()
    }
    assert reader_lines(runs) == [
        "a: reader: TensorFlow parses the records, as images are stored as JPEG files",
        "b: reader: pixels come from shards in memory",
    ]
    assert reader_lines({"b": runs["b"]}) == ["reader: pixels come from shards in memory"]


def test_workers_take_part_in_every_step(directory: Path):
    config = InputConfig(height=16, width=16)
    run = Training(data_dir=str(directory), config=config, batch_size=8, workers=2)
    steps = training(run)
    assert [next(steps) for _ in range(6)] == [1, 2, 3, 4, 5, 6]


def test_a_worker_that_ends_is_named(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """Worker 0 would wait for the other."""
    run = Training(data_dir=str(directory), config=InputConfig(), batch_size=8, workers=2)
    with reserved_addresses(1) as [free], socket.create_server(("127.0.0.1", 0)) as taken:
        addresses = [free, f"127.0.0.1:{taken.getsockname()[1]}"]
        monkeypatch.setattr(contenders, "reserved_addresses", lambda _: nullcontext(addresses))
        with pytest.raises(RuntimeError, match=r"^worker 1 ended with status 1$"):
            next(training(run))
    assert "Address already in use" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--sweep", "size"], "--sweep NAME and --values N … belong together"),
        (
            ["--augment", "Turn"],
            "--augment 'Turn' is not an operation: choose one that",
        ),
        (["--batches=0"], "batch_size and batches must be at least 1"),
        (["--size", "0", "9"], "height must be at least 1, got 0"),
        (
            ["--workers=0"],
            "replicas and workers must be at least 1, and one of them 1, got 1 and 0",
        ),
        (["--workers=2", "--replicas=3"], "and one of them 1, got 3 and 2"),
        (["--rounds=0"], "--rounds must be at least 1, got 0"),
        ([], "nowhere holds no finished dataset"),
    ],
)
def test_nonsense(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        input_throughput.main(["nowhere", *arguments])
    assert sentence in capsys.readouterr().err
