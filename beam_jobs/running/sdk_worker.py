"""The worker process that an engine starts where it has no container: `tillroll-sdk-worker`.

Flink and Spark run Python in a container of Beam, or in a process that behaves like one. Such a
process is told where Beam's services listen. It asks the provision service for the options of the
job, and goes on as Beam's own worker, which takes them from its environment.

Protocol: https://s.apache.org/beam-fn-api-container-contract
"""

import argparse
import os
import sys
from collections.abc import Sequence

import grpc
from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from google.protobuf import json_format

_TIMEOUT_S = 60


def main(argv: Sequence[str] | None = None) -> None:
    """Becomes Beam's worker; does not return."""
    parser = argparse.ArgumentParser(prog="tillroll-sdk-worker", description=__doc__)
    for name in ("--id", "--provision_endpoint"):
        parser.add_argument(name, required=True)
    for name in ("--logging_endpoint", "--control_endpoint", "--artifact_endpoint"):
        parser.add_argument(name, default="")
    parser.add_argument("--semi_persist_dir", default="/tmp")
    args, _ = parser.parse_known_args(argv)
    program = [sys.executable, "-m", "apache_beam.runners.worker.sdk_worker_main"]
    os.execve(sys.executable, program, os.environ | worker_environment(args))


def worker_environment(args: argparse.Namespace) -> dict[str, str]:
    """Returns the variables by which Beam's worker is told what to do."""
    worker_id = args.id.strip("'")  # Flink quotes it
    channel = grpc.intercept_channel(
        grpc.insecure_channel(args.provision_endpoint), WorkerIdInterceptor(worker_id)
    )
    info = (
        beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        .GetProvisionInfo(beam_provision_api_pb2.GetProvisionInfoRequest(), timeout=_TIMEOUT_S)
        .info
    )
    logging = info.logging_endpoint.url or args.logging_endpoint
    control = info.control_endpoint.url or args.control_endpoint
    environment = {
        "WORKER_ID": worker_id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "SEMI_PERSISTENT_DIRECTORY": args.semi_persist_dir,
        "LOGGING_API_SERVICE_DESCRIPTOR": str(endpoints_pb2.ApiServiceDescriptor(url=logging)),
        "CONTROL_API_SERVICE_DESCRIPTOR": str(endpoints_pb2.ApiServiceDescriptor(url=control)),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if info.HasField("status_endpoint"):
        environment["STATUS_API_SERVICE_DESCRIPTOR"] = str(info.status_endpoint)
    return environment


if __name__ == "__main__":
    main()
