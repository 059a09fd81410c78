"""Beam's side of a local worker process, which ends also where the worker has yet to connect."""

import threading

from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    BeamFnControlServicer,
    SubprocessSdkWorkerHandler,
    WorkerHandler,
)

_LOOK_EVERY_S = 0.2


@WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class LocalWorkerHandler(SubprocessSdkWorkerHandler):
    """Starts and ends a worker process.

    A worker needs a second or two until it connects. Beam tells only connected workers to end, and
    then waits for all of them: a build that was stopped in those seconds would wait for ever. In
    the same way Beam notices the end of a worker by its broken connection only: what is asked of a
    worker that was killed before it connected would never be answered.
    """

    def start_worker(self) -> None:
        """Starts the worker, and a thread that answers for it once it has ended."""
        self._closing = threading.Event()
        super().start_worker()
        threading.Thread(target=self._answer_after_its_end, daemon=True).start()

    def close(self) -> None:
        """Tells the worker to end, now or as soon as it connects, and waits until it has."""
        self._closing.set()
        # Private: what Beam's own server sends a worker, but only to those that are connected. Here
        # it waits in the queue of the connection.
        self.control_conn.push(BeamFnControlServicer._DONE_MARKER)
        super().close()

    def _answer_after_its_end(self) -> None:
        """Answers what was asked of the worker, and what will be, with an error."""
        self.worker_thread.join()
        # Again and again, as Beam goes on asking: it does not know that the worker has gone.
        while not self._closing.wait(_LOOK_EVERY_S):
            for number, future in self.control_conn._futures_by_id.copy().items():
                if not future.is_done():
                    error = "a worker process ended before its work"
                    future.set(
                        beam_fn_api_pb2.InstructionResponse(instruction_id=number, error=error)
                    )
