"""One build at a time: a lock that ends with its process, and a directory left as it was found."""

import errno
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.errors import BuildError
from beam_jobs.prepare.staging import Staging
from beam_jobs.writing.output_lock import output_lock
from tests.support.receipts import contents

HOLDER = """
import sys
from beam_jobs.prepare.staging import Staging
from beam_jobs.writing.output_lock import output_lock
with output_lock(Staging(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def lock(output: Path):
    return output_lock(Staging(str(output)))


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen]:
    """A process that builds in `out`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "out")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_build_is_refused_while_the_first_runs(
    tmp_path: Path, table: Path, build, capsys, holder: subprocess.Popen
):
    with pytest.raises(SystemExit) as exit_info:
        build(table, tmp_path / "out")
    assert exit_info.value.code == 2
    sentence = (
        f"{tmp_path / 'out'} is being built by process {holder.pid} on {socket.gethostname()}: "
        "wait until that build ends, or choose another --output"
    )
    assert sentence in capsys.readouterr().err
    assert list(contents(tmp_path / "out")) == ["_staging/BUILD"]


def test_a_kill_releases_the_lock(tmp_path: Path, holder: subprocess.Popen):
    with pytest.raises(BuildError, match="is being built by process"), lock(tmp_path / "out"):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with lock(tmp_path / "out"):
        assert (tmp_path / "out" / "_staging" / "BUILD").read_text().split()[1] == str(os.getpid())


@pytest.mark.parametrize("existed", [True, False])
def test_an_unused_directory_is_left_as_it_was_found(tmp_path: Path, existed: bool):
    output = tmp_path / "out"
    if existed:
        output.mkdir()
    with lock(output):
        (output / "_staging" / "prepared").mkdir()
    assert output.exists() == existed
    assert not (output / "_staging").exists()


def test_work_that_can_be_used_again_stays(tmp_path: Path):
    staging = tmp_path / "out" / "_staging"
    prepared = f"prepared/0000000-{'0' * 32}.npz"
    temporary = f"prepared/.0000000-{'0' * 32}.npz.{'a' * 32}.tmp"
    for name in (prepared, temporary, f"finished-{'0' * 32}/manifest.json"):
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).touch()
    with lock(tmp_path / "out"):
        assert sorted(contents(staging)) == ["BUILD", prepared]
        (staging / temporary).touch()  # as when the disk is full
    assert sorted(contents(staging)) == ["BUILD", prepared]


def test_a_lock_on_a_file_that_was_removed_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The build before removes its marker after this one has opened it."""
    marker = tmp_path / "out" / "_staging" / "BUILD"
    flock, calls = fcntl.flock, []

    def remove_first(descriptor: int, operation: int) -> None:
        calls.append(operation)
        if len(calls) == 1:
            marker.unlink()
            marker.parent.rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with lock(tmp_path / "out"):
        assert len(calls) == 2
        with pytest.raises(BuildError, match="is being built by"), lock(tmp_path / "out"):
            pass


def test_a_file_system_without_locks_is_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with lock(tmp_path / "out"):
        assert (tmp_path / "out" / "_staging" / "BUILD").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_directory_that_is_not_writable(tmp_path: Path):
    output = tmp_path / "out"
    output.mkdir(mode=0o500)
    sentence = f"{output} can't be written: Permission denied: {output / '_staging'}"
    with pytest.raises(BuildError, match=re.escape(sentence)), lock(output):
        pass


def test_a_file_system_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def mkdir(path: Path, **_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    sentence = f"{tmp_path / 'out'} can't be written: Read-only file system: "
    with pytest.raises(BuildError, match=re.escape(sentence)), lock(tmp_path / "out"):
        pass
