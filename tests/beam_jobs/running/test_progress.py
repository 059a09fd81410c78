"""The progress bar: the numbers it shows, and the folders it lists for them."""

import io
import json
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from tqdm import tqdm

from beam_jobs.images.image import ImageOptions
from beam_jobs.options import BuildOptions, CompactOptions
from beam_jobs.prepare.preparer import ChunkPreparer
from beam_jobs.running import progress
from beam_jobs.sources.row import Row
from beam_jobs.sources.source import Source
from beam_jobs.storage import files
from tests.support.receipts import draw_receipt


@pytest.fixture
def options(tmp_path: Path) -> BuildOptions:
    source = Source(path="t.csv", format="csv", columns={}, image_root="")
    return BuildOptions(source=source, output=str(tmp_path / "out"))


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often each folder was listed."""
    counts: Counter[str] = Counter()
    list_below = files.list_below

    def counted(directory: str) -> list[str]:
        counts[Path(directory).name] += 1
        return list_below(directory)

    monkeypatch.setattr(files, "list_below", counted)
    return counts


def prepare(options: BuildOptions, folder: Path, number: int, *, missing: int = 0) -> Path:
    """Prepares a chunk of one receipt and some that are missing; returns its sidecar."""
    draw_receipt(folder / f"{number}.jpg", number)
    names = [f"{number}.jpg", *(f"missing-{each}.jpg" for each in range(missing))]
    rows = [
        Row(id=f"{number}-{name}", uri=str(folder / name), categories={"layout": "a"}).to_bytes()
        for name in names
    ]
    ChunkPreparer(staging=options.staging, labels=(), image=ImageOptions(), seed=0).prepare(
        number, rows
    )
    [sidecar] = Path(options.staging.directory, "prepared").glob(f"{number:07d}-*.npz")
    return sidecar


def test_a_build_is_watched_from_its_table_to_its_shards(
    options: BuildOptions, tmp_path: Path, listed: Counter[str]
) -> None:
    with tqdm(file=io.StringIO()) as bar:
        watcher = progress._BuildWatcher(bar, options)
        watcher.look()
        assert (bar.total, bar.n, bar.postfix) == (None, 0, "")

        files.write(options.staging.inputs, b"4")
        watcher.look()
        prepare(options, tmp_path, 0)
        damaged = prepare(options, tmp_path, 1, missing=2)
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:-1])
        watcher.look()
        assert (bar.total, bar.n, bar.postfix) == (4, 1, "")
        damaged.write_bytes(whole)
        watcher.look()
        assert (bar.total, bar.n, bar.postfix) == (4, 4, "rejected 2")

        watcher.look()
        plan = {"shards": [2, 1]}
        files.write(options.staging.plan, json.dumps(plan).encode())
        watcher.look()
        assert bar.postfix == "rejected 2, shards 0/3"
        index = "receipts-train-00000.index.npz"
        files.write(files.join(options.finished_directory, index), b"")
        watcher.look()
        assert bar.postfix == "rejected 2, shards 1/3"
        files.delete_tree(options.finished_directory)  # as when they are moved into the dataset
        watcher.look()
        assert bar.postfix == "rejected 2, shards 1/3"
        watcher.finish()
        assert (bar.n, bar.postfix) == (4, "rejected 2, shards 3/3")
    assert listed["prepared"] == 2, "a folder is listed that nothing comes into"


def test_a_compaction_is_watched_from_its_first_shard_to_its_last(tmp_path: Path) -> None:
    options = CompactOptions(output=str(tmp_path / "out"), image={}, labels=())
    files.write(options.staging.plan, b'{"shards": [9, 9]}')  # of a launch that was killed
    with tqdm(file=io.StringIO()) as bar:
        watcher = progress._ShardsWatcher(bar, options)
        watcher.look()
        assert (bar.total, bar.n) == (None, 0)

        files.write(options.staging.plan, b'{"shards": [2, 1]}')
        for number in range(2):
            for kind in ("tfrecord", "index.npz"):
                name = f"receipts-train-{number:05}.{kind}"
                files.write(files.join(options.finished_directory, name), b"")
            watcher.look()
            assert (bar.desc, bar.total, bar.n) == ("writing shards: ", 3, number + 1)
        files.delete_tree(options.finished_directory)  # as when they are moved into the dataset
        watcher.look()
        assert (bar.total, bar.n) == (3, 2)
        watcher.finish()
        assert (bar.total, bar.n) == (3, 3)


@pytest.mark.parametrize(
    ("finds", "sentence"), [(True, "finding layouts: "), (False, "reading the indexes: ")]
)
def test_a_compaction_tells_what_it_does_first(
    finds: bool, sentence: str, tmp_path: Path, capsys
) -> None:
    options = CompactOptions(
        output=str(tmp_path / "out"),
        image={},
        labels=(),
        layout_from="text",
        finds_layouts=finds,
    )
    with progress.shown(options, enabled=True):
        pass
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("fails", [False, True])
def test_only_a_job_that_succeeds_fills_the_bar(
    options: BuildOptions, monkeypatch: pytest.MonkeyPatch, capsys, fails: bool
) -> None:
    monkeypatch.setattr(progress, "_LOCAL_INTERVAL_S", 0.001)
    files.write(options.staging.inputs, b"4")
    with (
        pytest.raises(KeyError) if fails else nullcontext(),
        progress.shown(options, enabled=True),
    ):
        shown, end = "", time.monotonic() + 60
        while "0/4" not in shown and time.monotonic() < end:
            time.sleep(0.01)
            shown += capsys.readouterr().err
        assert "0/4" in shown
        if fails:
            raise KeyError
    assert ("4/4" in capsys.readouterr().err) is not fails


@pytest.mark.parametrize(
    ("interval_s", "look_s", "pause_s"),
    [(0.5, 0.0, 0.5), (0.5, 0.01, 0.5), (0.5, 1.0, 19.0), (10.0, 0.4, 10.0), (10.0, 2.0, 38.0)],
)
def test_looking_takes_a_twentieth_of_the_time(
    interval_s: float, look_s: float, pause_s: float
) -> None:
    assert progress._pause_s(interval_s, look_s) == pytest.approx(pause_s)
