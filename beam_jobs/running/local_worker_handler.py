"""Beam's side of a local worker process."""

import threading
from typing import Any, Self

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    BeamFnControlServicer,
    GrpcWorkerHandler,
    WorkerHandler,
)
from apache_beam.transforms.environments import Environment, python_sdk_capabilities
from google.protobuf import json_format, text_format

from beam_jobs.running.local_workers import LocalWorker

_URN = "tillroll:environment:local_worker:v1"
_LOOK_EVERY_S = 0.2


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
        options = self.provision_info.provision_info.pipeline_options
        descriptors = {
            "CONTROL_API_SERVICE_DESCRIPTOR": self.control_api_service_descriptor(),
            "LOGGING_API_SERVICE_DESCRIPTOR": self.logging_api_service_descriptor(),
        }
        variables = {
            "WORKER_ID": self.worker_id,
            "PIPELINE_OPTIONS": json_format.MessageToJson(options),
            **{name: text_format.MessageToString(each) for name, each in descriptors.items()},
        }
        self._worker = LocalWorker(variables)
        self._waiting = threading.Thread(target=self._worker.wait)
        self._waiting.start()
        threading.Thread(target=self._answer_after_its_end, daemon=True).start()

    def close(self) -> None:
        """Tells the worker to end, now or as soon as it connects, and waits until it has."""
        self._closing.set()
        # Private: what Beam's own server sends a worker, but only to those that are connected. Here
        # it waits in the queue of the connection.
        self.control_conn.push(BeamFnControlServicer._DONE_MARKER)
        super().close()

    def stop_worker(self) -> None:
        """Waits until the worker has ended."""
        self._waiting.join()

    def _answer_after_its_end(self) -> None:
        """Answers what was asked of the worker, and what will be, with an error."""
        self._waiting.join()
        # Again and again, as Beam goes on asking: it does not know that the worker has gone.
        while not self._closing.wait(_LOOK_EVERY_S):
            for number, future in self.control_conn._futures_by_id.copy().items():
                if not future.is_done():
                    error = "a worker process ended before its work"
                    future.set(
                        beam_fn_api_pb2.InstructionResponse(instruction_id=number, error=error)
                    )
