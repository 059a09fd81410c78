"""The program that an engine starts where it has no container: `tillroll-sdk-worker`.

Flink and Spark run Python in a container of Beam, or in a process that behaves like one, and begin
a process for each stage on each slot. A process that imports Beam by itself takes seconds to begin,
and a small build would spend most of its time there. So this program imports nothing. It asks a
fork server, which has imported everything, for a copy of itself, and stays beside that copy: when
one of the two ends, the other does.

    TaskManager ──starts──▶ tillroll-sdk-worker ──asks──▶ fork server ──forks──▶ Beam's worker
                                    └──────────── a socket ties the two together ─────┘

The first worker of a machine starts the fork server, which ends when it has been idle for a minute
(`beam_jobs/running/fork_server.py`).
"""

import fcntl
import hashlib
import json
import os
import socket
import stat
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# A request: its length, then JSON. The answers, each a byte: the worker has begun; its exit status.
LENGTH = struct.Struct(">I")
BEGUN = b"\1"
_BACKLOG = 128
_ATTEMPTS = 3
_PACKAGES = ("beam_jobs", "schemas")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a worker to its end.

    Args:
      argv: the arguments of Beam's container contract, such as --id=1-1.

    Returns:
      The exit status of the worker; 1 if it was killed.

    Raises:
      RuntimeError: no fork server can be started.
    """
    request = {
        "arguments": list(sys.argv[1:] if argv is None else argv),
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
    }
    encoded = json.dumps(request).encode()
    for _ in range(_ATTEMPTS):  # a server may be killed before it has begun the worker
        with _connect() as server:
            socket.send_fds(server, [LENGTH.pack(len(encoded))], [1, 2])
            server.sendall(encoded)
            if server.recv(1) == BEGUN:
                status = server.recv(1)  # when the worker ends
                return status[0] if status else 1
    raise RuntimeError(
        f"the process that forks workers ended {_ATTEMPTS} times before it had begun one; "
        "its messages are above"
    )


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Holds the lock under which sockets of a folder are made, used and deleted."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _connect() -> socket.socket:
    """Returns a connection to the fork server, which is started if there is none."""
    path = _folder() / f"{_environment_digest()}.socket"
    server = socket.socket(socket.AF_UNIX)
    with lock(path.parent):
        try:
            server.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):  # none yet, or it was killed
            path.unlink(missing_ok=True)
            _start_server(path)
            server.connect(str(path))
    return server


def _start_server(path: Path) -> None:
    """Starts the server with a socket on which connections wait until it has imported Beam."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        number = listener.fileno()
        program = [sys.executable, "-m", "beam_jobs.running.fork_server", str(number), str(path)]
        subprocess.Popen(
            program, stdin=subprocess.DEVNULL, pass_fds=[number], start_new_session=True
        )


def _folder() -> Path:
    """Returns the folder of the sockets, which belongs to this user alone.

    Raises:
      PermissionError: others may write there.
    """
    folder = Path(tempfile.gettempdir()) / f"tillroll-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    private = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if not (private and stat.S_ISDIR(found.st_mode)):
        raise PermissionError(f"{folder} must be a folder of user {os.getuid()} alone: delete it")
    return folder


def _environment_digest() -> str:
    """Digest of what a fork server has from its start and workers must not mix: code, variables."""
    code = Path(__file__).parents[2]
    files = sorted(path for package in _PACKAGES for path in (code / package).rglob("*.py"))
    installed = Path(sysconfig.get_path("purelib"))
    times = [(str(path), path.stat().st_mtime_ns) for path in [installed, *files]]
    known = json.dumps([sys.executable, sorted(os.environ.items()), times])
    return hashlib.sha256(known.encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
