"""The environment of a worker: what it asks of Beam, and what it tells Beam's worker."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("apache_beam")

import grpc
from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from google.protobuf import json_format, text_format

from beam_jobs.running.fork_server import worker_arguments, worker_environment

Provision = beam_provision_api_pb2.ProvisionInfo


class Service(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    """Beam's service, which tells a worker about its job."""

    def __init__(self) -> None:
        self.info = Provision()
        self.asked_by: list[Any] = []

    def GetProvisionInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.asked_by.append(dict(context.invocation_metadata())["worker_id"])
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=self.info)


@pytest.fixture
def service() -> Iterator[tuple[Service, str]]:
    server = grpc.server(ThreadPoolExecutor(1))
    service = Service()
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield service, f"127.0.0.1:{port}"
    server.stop(None)


def environment(address: str, *others: str) -> dict[str, str]:
    given = ["--id='3-1'", f"--provision_endpoint={address}", "--semi_persist_dir=/data"]
    return worker_environment(worker_arguments([*given, *others]))


def test_the_environment_of_beams_worker(service: tuple[Service, str]) -> None:
    provision, address = service
    json_format.ParseDict({"option:seed:v1": "7"}, provision.info.pipeline_options)
    provision.info.logging_endpoint.url = "127.0.0.1:1"
    provision.info.status_endpoint.url = "127.0.0.1:3"
    provision.info.runner_capabilities.extend(["a", "b"])
    made = environment(address, "--control_endpoint=127.0.0.1:2")
    assert provision.asked_by == ["3-1"]
    assert made["WORKER_ID"] == "3-1"
    assert json.loads(made["PIPELINE_OPTIONS"]) == {"option:seed:v1": "7"}
    assert made["SEMI_PERSISTENT_DIRECTORY"] == "/data"
    assert made["RUNNER_CAPABILITIES"] == "a b"
    for name, port in (("LOGGING", 1), ("CONTROL", 2), ("STATUS", 3)):
        descriptor = text_format.Parse(
            made[f"{name}_API_SERVICE_DESCRIPTOR"], endpoints_pb2.ApiServiceDescriptor()
        )
        assert descriptor.url == f"127.0.0.1:{port}"


def test_what_the_engine_does_not_have_is_left_out(service: tuple[Service, str]) -> None:
    _, address = service
    assert "STATUS_API_SERVICE_DESCRIPTOR" not in environment(address, "--unknown_to_us=x")
