"""A process that has imported what workers need, and forks one whenever it is asked to.

`beam_jobs/running/sdk_worker.py` asks it. A fork takes milliseconds, and workers share the memory
of what was imported. It is safe as this process has one thread of Python and has opened no channel
of gRPC: neither may happen before a fork.

Beam's protocol: https://s.apache.org/beam-fn-api-container-contract
"""

import argparse
import gc
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from google.protobuf import json_format

from beam_jobs.running.beam_start import dofn_specs_kept
from beam_jobs.running.forked_process import end_with, ended, run_and_exit
from beam_jobs.running.sdk_worker import BEGUN, LENGTH, lock
from beam_jobs.running.versions import VARIABLE, check_versions

_PROVISION_TIMEOUT_S = 60
_REQUEST_TIMEOUT_S = 10
_IDLE_S = 60
_LOOK_EVERY_S = 1


def main() -> None:
    """Serves the socket whose number and path are the arguments."""
    listener, path = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])
    # The first worker may be done long before this process, and its outputs with it.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    gc.freeze()  # otherwise the collector writes to, and so copies, the pages shared with workers
    serve(listener, path)


def serve(listener: socket.socket, path: Path, *, idle_s: float = _IDLE_S) -> None:
    """Forks a worker for each connection, until there has been no worker for some time.

    Args:
      listener: socket that listens.
      path: where it is bound; deleted at the end.
      idle_s: seconds without a worker after which it ends.
    """
    listener.settimeout(_LOOK_EVERY_S)
    workers: set[int] = set()
    busy_s = time.monotonic()
    while True:
        with suppress(TimeoutError):
            connection, _ = listener.accept()
            with connection:
                if worker := _fork(connection, listener):
                    workers.add(worker)
        workers -= ended(workers)
        if workers:
            busy_s = time.monotonic()
        elif time.monotonic() - busy_s > idle_s and _close(listener, path):
            return


def _close(listener: socket.socket, path: Path) -> bool:
    """Deletes the socket, unless a worker is asked for at this very moment; returns whether."""
    with lock(path.parent):
        listener.settimeout(0)
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            path.unlink(missing_ok=True)
            listener.close()
            return True
    with connection:  # it tries once more
        listener.settimeout(_LOOK_EVERY_S)
    return False


def _fork(connection: socket.socket, listener: socket.socket) -> int:
    """Forks a worker, and returns its process id; 0 if nothing was asked for."""
    connection.settimeout(_REQUEST_TIMEOUT_S)
    try:
        head, outputs, _, _ = socket.recv_fds(connection, LENGTH.size, 2)
        if not head:
            return 0
        with connection.makefile("rb") as stream:
            request = json.loads(stream.read(*LENGTH.unpack(head)))
    except OSError:  # who asked has ended
        return 0
    worker = os.fork()
    if not worker:
        listener.close()
        run_and_exit(partial(_be_worker, request, outputs, connection), connection)
    for output in outputs:
        os.close(output)
    return worker


def _be_worker(request: dict[str, Any], outputs: Sequence[int], connection: socket.socket) -> None:
    """Does a worker's work in a forked process."""
    for output, number in zip(outputs, (1, 2), strict=True):
        os.dup2(output, number)
        os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    connection.settimeout(None)
    connection.sendall(BEGUN)
    end_with(connection)
    if command := os.environ.get(VARIABLE):
        check_versions(command)
    os.environ.update(worker_environment(worker_arguments(request["arguments"])))
    with dofn_specs_kept():
        sdk_worker_main.main([])


def worker_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments that an engine gives to what it starts."""
    parser = argparse.ArgumentParser(prog="tillroll-sdk-worker")
    for name in ("--id", "--provision_endpoint"):
        parser.add_argument(name, required=True)
    for name in ("--logging_endpoint", "--control_endpoint", "--artifact_endpoint"):
        parser.add_argument(name, default="")
    parser.add_argument("--semi_persist_dir", default="/tmp")
    args, _ = parser.parse_known_args(argv)
    return args


def worker_environment(args: argparse.Namespace) -> dict[str, str]:
    """Returns the variables by which Beam's worker is told what to do."""
    worker_id = args.id.strip("'")  # Flink quotes it
    with grpc.insecure_channel(args.provision_endpoint) as plain:
        channel = grpc.intercept_channel(plain, WorkerIdInterceptor(worker_id))
        info = (
            beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
            .GetProvisionInfo(
                beam_provision_api_pb2.GetProvisionInfoRequest(), timeout=_PROVISION_TIMEOUT_S
            )
            .info
        )
    logs = info.logging_endpoint.url or args.logging_endpoint
    control = info.control_endpoint.url or args.control_endpoint
    environment = {
        "WORKER_ID": worker_id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "SEMI_PERSISTENT_DIRECTORY": args.semi_persist_dir,
        "LOGGING_API_SERVICE_DESCRIPTOR": str(endpoints_pb2.ApiServiceDescriptor(url=logs)),
        "CONTROL_API_SERVICE_DESCRIPTOR": str(endpoints_pb2.ApiServiceDescriptor(url=control)),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if info.HasField("status_endpoint"):
        environment["STATUS_API_SERVICE_DESCRIPTOR"] = str(info.status_endpoint)
    return environment


if __name__ == "__main__":
    main()
