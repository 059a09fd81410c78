"""An image that kills, stalls or exhausts the process that prepares it costs only itself."""

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.images.image import ImageOptions, store_image, without_pixels
from beam_jobs.images.process import ImageProcess
from beam_jobs.rejection import Reason, RejectionError
from tests.support.dataset_files import manifest_of
from tests.support.pictures import encode
from tests.support.receipts import contents, write_receipts

pytestmark = pytest.mark.slow

# A decoder with faults: what it does follows from the width of the image.
KILLED, CRASHES, STALLS, SLEEPS, EXHAUSTS, EXITS, KILLED_ONCE = range(101, 108)
FAULTY_DECODER = f"""
import os, signal, time
from pathlib import Path
from PIL import ImageFile

load = ImageFile.ImageFile.load

def faulty(self):
    mark = Path(os.environ["FAULTY_DECODER"])
    match self.width:
        case {KILLED}: os.kill(os.getpid(), signal.SIGKILL)
        case {CRASHES}: os.kill(os.getpid(), signal.SIGSEGV)
        case {STALLS}:
            while True: pass
        case {SLEEPS}: time.sleep(60)
        case {EXHAUSTS}: bytearray(200 << 20)
        case {EXITS}: os._exit(3)
        case {KILLED_ONCE} if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return load(self)

ImageFile.ImageFile.load = faulty
"""
BOX = (6.0, 4.0, 22.0, 12.0, "TOTAL")
OPTIONS = ImageOptions(max_seconds=1, max_memory_bytes=100 << 20)


def png(width: int = 64, height: int = 48) -> bytes:
    image = Image.new("RGB", (width, height), "white")
    image.paste("black", (6, 4, 22, 12))
    return encode(image, "PNG")


@pytest.fixture
def faulty_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives processes that are started from now on the decoder with faults."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FAULTY_DECODER)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("FAULTY_DECODER", str(tmp_path / "mark"))


@pytest.fixture
def process() -> Iterator[ImageProcess]:
    with ImageProcess(OPTIONS) as process:
        yield process


def test_gives_what_this_process_gives(process: ImageProcess) -> None:
    options = dataclasses.replace(OPTIONS)
    for data in (png(), png(80, 30)):
        expected = store_image(data, [BOX], options)
        assert process.store_image(data, [BOX]) == without_pixels(expected)


def test_starts_in_any_folder(
    process: ImageProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package may be one that only `sys.path` leads to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[3]), *sys.path])
    assert process.store_image(png(), []).full_size == (64, 48)


@pytest.mark.parametrize(
    ("data", "boxes"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(png()[:-40], [], id="truncated"),
        pytest.param(png(), [(90.0, 0.0, 99.0, 9.0, "x")], id="box_outside"),
    ],
)
def test_refuses_what_this_process_refuses(process: ImageProcess, data: bytes, boxes: list) -> None:
    with pytest.raises(RejectionError) as expected:
        store_image(data, boxes, OPTIONS)
    with pytest.raises(RejectionError) as caught:
        process.store_image(data, boxes)
    assert caught.value.args == expected.value.args


@pytest.mark.parametrize(
    ("width", "reason", "message"),
    [
        pytest.param(
            KILLED,
            Reason.KILLED_WORKER,
            "preparing the image ended 2 processes that did nothing else: signal SIGKILL, signal "
            "SIGKILL",
            id="killed",
        ),
        pytest.param(
            CRASHES,
            Reason.KILLED_WORKER,
            "preparing the image ended 2 processes that did nothing else: signal SIGSEGV, signal "
            "SIGSEGV",
            id="crashes",
        ),
        pytest.param(
            EXITS,
            Reason.KILLED_WORKER,
            "preparing the image ended 2 processes that did nothing else: exit status 3, exit "
            "status 3",
            id="exits",
        ),
        pytest.param(
            STALLS,
            Reason.TOO_SLOW,
            "preparing takes more than 1 s of processor time: raise --max-image-seconds if the "
            "image is genuine",
            id="stalls",
        ),
        pytest.param(
            EXHAUSTS,
            Reason.TOO_MUCH_MEMORY,
            "preparing takes more than 100 MiB, or than this machine has: raise "
            "--max-image-memory-mb if the image is genuine",
            id="exhausts",
        ),
    ],
)
@pytest.mark.usefixtures("faulty_decoder")
def test_the_image_is_refused_and_the_next_prepared(
    process: ImageProcess, width: int, reason: Reason, message: str
) -> None:
    with pytest.raises(RejectionError) as caught:
        process.store_image(png(width), [])
    assert caught.value.args == (reason, message)
    assert process.store_image(png(), []).full_size == (64, 48)


@pytest.mark.usefixtures("faulty_decoder")
def test_a_decoder_that_waits_for_ever_is_ended(
    process: ImageProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beam_jobs.images.process.WALL_SECONDS", 1)
    with pytest.raises(RejectionError) as caught:
        process.store_image(png(SLEEPS), [])
    assert caught.value.reason == Reason.TOO_SLOW


@pytest.mark.usefixtures("faulty_decoder")
def test_one_kill_costs_no_image(process: ImageProcess) -> None:
    assert process.store_image(png(KILLED_ONCE), []).full_size == (KILLED_ONCE, 48)


def test_a_process_that_does_not_start_ends_the_build(
    process: ImageProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(BuildError) as caught:
        process.store_image(png(), [])
    assert str(caught.value) == (
        "the process that prepares large images could not start, it ended with exit status 1: "
        "make sure that a worker has memory for a second process, and run the same command again"
    )


def test_a_process_that_crashes_as_it_starts_is_not_told_to_be_short_of_memory(
    process: ImageProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -SEGV $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(BuildError) as caught:
        process.store_image(png(), [])
    assert str(caught.value) == (
        "the process that prepares large images could not start, it ended with signal SIGSEGV: "
        "a library that it imports has crashed, so make its environment anew, and run the same "
        "command again"
    )


@pytest.mark.usefixtures("faulty_decoder")
def test_only_large_images_are_prepared_apart(process: ImageProcess) -> None:
    small = store_image(png(KILLED), [], OPTIONS, large=process.store_image)
    assert small.full_size == (KILLED, 48)
    large = encode(Image.new("1", (KILLED, 400_000)), "PNG")
    options = dataclasses.replace(OPTIONS, max_memory_bytes=2 << 30)
    with (
        ImageProcess(options) as process,
        pytest.raises(RejectionError, match="ended 2 processes") as caught,
    ):
        store_image(large, [], options, large=process.store_image)
    assert caught.value.reason == Reason.KILLED_WORKER


@pytest.mark.parametrize(("width", "reason"), [(KILLED, "killed_worker"), (STALLS, "too_slow")])
@pytest.mark.usefixtures("faulty_decoder")
def test_a_build_survives_an_image_that_ends_its_worker(
    tmp_path: Path, build: Callable[..., int], width: int, reason: str
) -> None:
    """The first run dies, the second names the image and has all the others."""
    table = write_receipts(tmp_path / "in", {"a": 9, "b": 4})
    sound, output = tmp_path / "sound", tmp_path / "out"
    options = ("--shards=2", "--max-bad-fraction=0.1", "--max-image-seconds=1")
    assert build(table, sound, *options) == 0
    (tmp_path / "in" / "killer.png").write_bytes(png(width))
    with table.open("a") as file:
        file.write(json.dumps({"id": "killer", "image": "killer.png", "layout": "a"}) + "\n")
    command = [sys.executable, "-m", "beam_jobs.build", "--input", str(table), "--workers=1"]
    command += ["--output", str(output), "--quiet", *options]
    first, second = (subprocess.run(command, capture_output=True, text=True) for _ in range(2))
    assert first.returncode == (-signal.SIGKILL if width == KILLED else 1)
    assert ("killer.png (id 'killer') takes more than 10 s" in first.stderr) == (width == STALLS)
    assert second.returncode == 0, second.stderr
    assert f"quarantined   1: {reason} 1" in second.stdout
    counts = manifest_of(output).counts
    assert (counts.inputs, counts.written) == (14, 13)
    assert counts.quarantined == {reason: 1}
    built, expected = contents(output), contents(sound)
    [listed] = [data for name, data in built.items() if "rejected.jsonl" in name]
    assert json.loads(listed)["id"] == "killer"
    shards = [name for name in expected if name.startswith("receipts-")]
    assert shards
    assert {name: built[name] for name in shards} == {name: expected[name] for name in shards}
