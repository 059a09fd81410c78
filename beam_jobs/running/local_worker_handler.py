"""Beam's side of a local worker process, which ends also where the worker has yet to connect."""

from apache_beam.portability import python_urns
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    BeamFnControlServicer,
    SubprocessSdkWorkerHandler,
    WorkerHandler,
)


@WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class LocalWorkerHandler(SubprocessSdkWorkerHandler):
    """Starts and ends a worker process.

    A worker needs a second or two until it connects. Beam tells only connected workers to end, and
    then waits for all of them: a build that was stopped in those seconds would wait for ever.
    """

    def close(self) -> None:
        """Tells the worker to end, now or as soon as it connects, and waits until it has."""
        self.control_conn.push(BeamFnControlServicer._DONE_MARKER)
        super().close()
