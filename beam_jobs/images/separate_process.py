"""A process that answers requests one by one, and whose end its user outlives.

The process is a module that is run as a program, and calls `serve_requests`. It reads pickled
requests from its standard input and writes pickled answers to its standard output, until nobody can
write to the input any more.
"""

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from beam_jobs.errors import BuildError

_CRASHES = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE)


class EndedError(Exception):
    """The process ended without an answer.

    Attributes:
      status: its exit status, negative for a signal.
      overdue: whether it was ended, as the answer took too long.
    """

    def __init__(self, status: int, *, overdue: bool) -> None:
        super().__init__(status, overdue)
        self.status = status
        self.overdue = overdue

    @property
    def name(self) -> str:
        """Sentence about its end, for people."""
        return _name(self.status)


class SeparateProcess:
    """Starts a process for the first request, and anew for the first after its end.

    Args:
      module: the module that is run.
      setting: what the process needs for all requests; it is sent first.
      task: what it does, for the error where it can't start: "prepares large images".
    """

    def __init__(self, module: str, setting: object, *, task: str) -> None:
        self._module = module
        self._setting = setting
        self._task = task
        self._process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """Ends the process, if there is one."""
        if self._process:
            self._process.kill()
            self._ended()

    def ask(self, request: object, *, limit_s: float) -> Any:
        """Returns the answer to a request.

        Raises:
          EndedError: there is none, within so many seconds.
          BuildError: the process can't start.
        """
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            process.kill()

        timer = threading.Timer(limit_s, end)
        timer.start()
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):  # the process is gone
            status = self._ended()
        else:
            return answer
        finally:
            timer.cancel()
        raise EndedError(status, overdue=overdue.is_set())

    def _started(self) -> subprocess.Popen[bytes]:
        folders = [*sys.path, os.environ.get("PYTHONPATH", "")]  # it must find this very package
        process = subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
            start_new_session=True,  # a Ctrl-C is for the job, not for one image of it
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(self._setting, process.stdin)
            process.stdin.flush()
            refusal = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            process.communicate()
            status = process.returncode
            advice = "make sure that a worker has memory for a second process"
            if status in _CRASHES:
                advice = "a library that it imports has crashed, so make its environment anew"
            raise BuildError(
                f"the process that {self._task} could not start, it ended with {_name(status)}: "
                f"{advice}, and run the same command again"
            ) from error
        if refusal is not None:
            process.communicate()
            raise BuildError(refusal)
        return process

    def _ended(self) -> int:
        """Waits for the process, which has ended or is about to, and returns its exit status."""
        process, self._process = self._process, None
        assert process is not None
        process.communicate()  # closes the pipes
        return process.returncode


def _name(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def serve_requests(make_answer: Callable[[Any], Callable[[Any], object]]) -> None:
    """Serves this process's standard input, until it ends.

    Args:
      make_answer: makes, from the setting, the function that answers a request; where it raises
        BuildError, the job ends with that sentence.
    """
    threading.Thread(target=_end_with_input, daemon=True).start()
    requests = sys.stdin.buffer
    # What a library prints must not get into the answers.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)

        def send(answer: object) -> None:
            pickle.dump(answer, answers)
            answers.flush()

        try:
            answer = make_answer(pickle.load(requests))
        except BuildError as error:
            send(str(error))
            return
        send(None)
        while True:
            try:
                request = pickle.load(requests)
            except EOFError:
                return
            send(answer(request))


def _end_with_input() -> None:
    """Ends this process once its user has ended, also if that was killed during a request."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)  # nothing but the end of all who can write
    poll.poll()
    os._exit(1)
