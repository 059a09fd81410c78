"""The worker processes of local jobs, which are forked from one that has imported Beam.

A process needs two seconds of a core to import Beam, and a local job has a worker for each core. A
fork takes milliseconds, but only a process with one thread, which has opened no channel of gRPC,
can be forked safely. The process that launches jobs has both, from its first job on. So it starts
a server beforehand, which does nothing but fork:

    launching process ──asks──▶ server ──forks──▶ worker
            └──── a socket tells either of the two when the other ends ────┘

A command forks the server from itself before it begins its job. Any other program, such as a
notebook, may have threads: there the server is a program of its own, which imports Beam once for
all jobs of that process. Either way it ends with the process that started it.
"""

import faulthandler
import gc
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from beam_jobs.errors import WORKER_CANT_START, WORKER_CRASHED, WORKER_FAILED, WORKER_KILLED
from beam_jobs.running.forked_process import CANT_START, end_with, ended, run_and_exit
from beam_jobs.running.import_messages import hide_import_messages
from beam_jobs.running.stop_signals import stop_signals_held
from beam_jobs.running.thread_failures import check_threads
from schemas.program import STOP_SIGNALS

if __name__ == "__main__":
    hide_import_messages()
    logging.basicConfig(level=logging.CRITICAL)  # before Beam is imported, which logs as it starts

from apache_beam.runners.worker import sdk_worker_main

from beam_jobs.running.beam_start import dofn_specs_kept

_MODULE = "beam_jobs.running.local_workers"
_ANSWER_BYTES = 4096
_THREADS = 16  # of Beam and gRPC in a worker, at least: 20 were seen


class WorkerServer:
    """A process that forks workers, and ends with the one that started it.

    Args:
      is_forked: whether it is forked from this process, rather than a program of its own.
    """

    def __init__(self, *, is_forked: bool) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, stop_signals_held():
            if is_forked:
                self._process = os.fork()
                if not self._process:
                    self._requests.close()
                    run_and_exit(partial(_serve, theirs), theirs)
            else:
                theirs.set_inheritable(True)
                command = [sys.executable, "-m", _MODULE, str(theirs.fileno())]
                # It finds modules where this process does, as in a folder that a notebook added.
                variables = {**os.environ, "PYTHONPATH": os.pathsep.join(_module_folders())}
                self._process = os.posix_spawn(sys.executable, command, variables)

    def is_alive(self) -> bool:
        """Returns whether it can still be asked."""
        try:
            self._requests.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except ConnectionResetError:  # killed before it had read all
            return False
        return False

    def fork(self, connection: socket.socket) -> None:
        """Forks a worker, which gets a copy of one end of a connection."""
        with suppress(BrokenPipeError):  # who holds the other end sees that nobody has this one
            socket.send_fds(self._requests, [b"\0"], [connection.fileno()])

    def close(self) -> None:
        """Ends it and its workers, and waits until they have ended."""
        self._requests.close()
        with suppress(ChildProcessError):  # of a copy of the process that started it
            os.waitpid(self._process, 0)


class LocalWorkers:
    """The workers of this process.

    Attributes:
      may_fork: whether this process is a command that has begun no job yet.
    """

    may_fork = False
    _server: WorkerServer | None = None
    _lock = threading.Lock()

    @classmethod
    def server(cls) -> WorkerServer:
        """Returns the server, which is started if there is none, or none any more."""
        with cls._lock:
            if not (cls._server and cls._server.is_alive()):
                cls._close()
                is_forked = cls.may_fork and threading.active_count() == 1
                cls.may_fork = False
                cls._server = WorkerServer(is_forked=is_forked)
            return cls._server

    @classmethod
    def close(cls) -> None:
        """Ends the workers and their server, if there are any."""
        with cls._lock:
            cls._close()

    @classmethod
    def _close(cls) -> None:
        if cls._server:
            cls._server.close()
            cls._server = None


class LocalWorker:
    """A worker process, which ends with this one.

    Args:
      variables: of Beam's container contract, in addition to those of this process.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            LocalWorkers.server().fork(theirs)
        request = json.dumps([str(Path.cwd()), _module_folders(), {**os.environ, **variables}])
        with suppress(BrokenPipeError):  # it was killed: `wait` says so
            self._connection.sendall(f"{request}\n".encode())

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until it has ended.

        Raises:
          TimeoutError: it has not ended within so many seconds.
          RuntimeError: it was killed, has crashed or has failed.
        """
        self._connection.settimeout(timeout_s)
        answer = b""  # its exit status, a byte, or what `faulthandler` writes when it crashes
        with suppress(ConnectionResetError):  # killed before it had read all
            while piece := self._connection.recv(_ANSWER_BYTES):
                answer += piece
        self._connection.close()
        if not answer:
            raise RuntimeError(WORKER_KILLED)
        if crash := re.match(rb"Fatal Python error: (.+)", answer):
            raise RuntimeError(f"{WORKER_CRASHED} ({crash[1].decode()})")
        if answer[0] == CANT_START:
            raise RuntimeError(WORKER_CANT_START)
        if answer[0]:
            raise RuntimeError(f"{WORKER_FAILED} {answer[0]}")


def _module_folders() -> list[str]:
    """Returns where this process finds modules; Python passes over a Path, which is no text."""
    return [each or str(Path.cwd()) for each in sys.path if isinstance(each, str)]


def _serve(requests: socket.socket) -> None:
    """Forks a worker for each connection that is received, until nobody can ask any more."""
    # Ctrl-C reaches all processes of a terminal. The launching process says what it means.
    for stop_signal in STOP_SIGNALS:
        signal.signal(stop_signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would hide how children end
    gc.freeze()  # otherwise the collector writes to, and so copies, the pages shared with workers
    workers: set[int] = set()
    while True:
        message, numbers, _, _ = socket.recv_fds(requests, 1, 1)
        workers -= ended(workers)
        if not message:
            break
        with socket.socket(fileno=numbers[0]) as connection:
            try:
                worker = os.fork()
            except OSError:  # too many processes, or too little memory
                connection.sendall(bytes([CANT_START]))
                continue
            if not worker:
                requests.close()
                run_and_exit(partial(_be_worker, connection), connection)
            workers.add(worker)
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
    for worker in workers:
        os.waitpid(worker, 0)


def _be_worker(connection: socket.socket) -> None:
    """Does a worker's work in a forked process."""
    with connection.makefile() as stream:
        request = stream.readline()
    if not request.endswith("\n"):  # who asked has ended
        return
    directory, sys.path[:], environment = json.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    end_with(connection)
    faulthandler.enable(connection, all_threads=False)  # tells of SIGSEGV, SIGABRT and the like
    check_threads(_THREADS)
    logging.basicConfig(level=logging.CRITICAL, force=True)
    # It raises the level of all logs until it knows the options, greets, and logs its own failure.
    logging.getLogger(sdk_worker_main.__name__).disabled = True
    # It prints the traceback of each failure, which the launching process is sent as well. A thread
    # of it may fail after `main`, as when a job is stopped.
    errors, sys.stderr = sys.stderr, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    try:
        with dofn_specs_kept():
            sdk_worker_main.main([])
    except BaseException:
        sys.stderr = errors  # the worker itself has failed: nobody else tells why
        raise


if __name__ == "__main__":
    import beam_jobs.job  # noqa: F401  (what workers run: shared by all of them)

    _serve(socket.socket(fileno=int(sys.argv[1])))
