"""Beam's side of a local worker process."""

import threading
from contextlib import suppress
from typing import Any, Self

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    BeamFnControlServicer,
    GrpcWorkerHandler,
    WorkerHandler,
)
from apache_beam.transforms.environments import Environment, python_sdk_capabilities
from google.protobuf import json_format, text_format

from beam_jobs.errors import WORKER_CANT_START
from beam_jobs.running.local_workers import LocalWorker, LocalWorkers

_URN = "tillroll:environment:local_worker:v1"
_LOOK_EVERY_S = 0.2
_FIRST_ANSWER_S = 60


@Environment.register_urn(_URN, None)
class LocalWorkerEnvironment(Environment):
    """Worker processes of `LocalWorkerHandler`."""

    def __init__(self) -> None:
        super().__init__(capabilities=python_sdk_capabilities(), artifacts=())

    def to_runner_api_parameter(self, context: Any) -> tuple[str, None]:
        """Returns what Beam knows it by."""
        return _URN, None

    @classmethod
    def from_runner_api_parameter(cls, *_: Any) -> Self:
        """Returns it from what Beam knows it by."""
        return cls()


@WorkerHandler.register_environment(_URN, None)
class LocalWorkerHandler(GrpcWorkerHandler):
    """Starts and ends a worker process, also one that has yet to connect.

    Beam tells only connected workers to end, and then waits for all of them: a build that was
    stopped while a worker begins would wait for ever. In the same way Beam notices the end of a
    worker by its broken connection only: what is asked of a worker that was killed before it
    connected would never be answered.
    """

    def __init__(self, payload: None, *others: Any) -> None:
        super().__init__(*others)

    def start_worker(self) -> None:
        """Starts the worker, and a thread that answers for it once it has ended."""
        self._closing = threading.Event()
        self._is_lost = True
        # Private: it ends with the worker's stream, which may never end where threads can't start.
        # The interpreter would wait for it.
        self.control_conn._read_thread.daemon = True
        self._watching = threading.Thread(target=self._watch, daemon=True)
        # Beam would ask it first for a bundle, which may take hours.
        self._first_answer = self.control_conn.push(
            beam_fn_api_pb2.InstructionRequest(
                harness_monitoring_infos=beam_fn_api_pb2.HarnessMonitoringInfosRequest()
            )
        )
        options = self.provision_info.provision_info.pipeline_options
        # It logs to standard error. A service for logs takes threads, and a worker that fails waits
        # for it.
        variables = {
            "WORKER_ID": self.worker_id,
            "PIPELINE_OPTIONS": json_format.MessageToJson(options),
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(
                self.control_api_service_descriptor()
            ),
        }
        self._worker = LocalWorker(variables)
        self._watching.start()

    def close(self) -> None:
        """Tells the worker to end, now or as soon as it connects, and waits until it has."""
        self._closing.set()
        # Private: what Beam's own server sends a worker, but only to those that are connected. Here
        # it waits in the queue of the connection.
        self.control_conn.push(BeamFnControlServicer._DONE_MARKER)
        # Before the worker ends: it may end so fast that its stream breaks, which is told as a
        # failure unless this side is closed.
        self.data_conn.close()
        if self._watching.ident:
            self._watching.join()
        if self._is_lost:
            # Beam waits for the ends of a lost worker's streams, and of the threads of its own
            # servers. None may come where threads can't start.
            self._grpc_server.close = self._stop_servers
        else:
            super().close()

    def _stop_servers(self) -> None:
        """Stops the servers of the job, and waits for none of them."""
        server = self._grpc_server
        for name in ("control", "data", "state", "logging"):
            with suppress(RuntimeError):  # it needs a thread for that: it ends with the process
                getattr(server, f"{name}_server").stop(0)

    def stop_worker(self) -> None:
        """Does nothing: `close` has waited for the worker."""

    def _watch(self) -> None:
        """Waits until the worker has ended; if it has failed, answers all that is asked of it."""
        try:
            self._wait()
        except RuntimeError as error:
            # Again and again, as Beam goes on asking: it does not know that the worker has gone.
            while not self._closing.wait(_LOOK_EVERY_S):
                for number, future in self.control_conn._futures_by_id.copy().items():
                    if not future.is_done():
                        future.set(
                            beam_fn_api_pb2.InstructionResponse(
                                instruction_id=number, error=str(error)
                            )
                        )
            raise
        self._is_lost = False

    def _wait(self) -> None:
        """Waits until the worker has ended.

        Raises:
          RuntimeError: it was killed, has failed, or has not answered in time.
        """
        try:
            self._worker.wait(_FIRST_ANSWER_S)
        except TimeoutError:
            if not self._first_answer.is_done():
                LocalWorkers.close()
                raise RuntimeError(WORKER_CANT_START) from None
            self._worker.wait()
        except RuntimeError:
            if not self._first_answer.is_done():
                LocalWorkers.close()  # Beam would await the work of the others first
            raise
