"""The build from and to an object store, on a real S3 protocol server."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("boto3")
pytest.importorskip("moto")

import boto3

from beam_jobs.build import main
from beam_jobs.verify import main as verify_main
from tests.conftest import contents


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while True:
        assert server.poll() is None, "the S3 server has died"
        assert time.monotonic() < deadline, "the S3 server does not start"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(timeout=30)


@pytest.mark.parametrize("workers", [1, 2])
def test_s3_gives_the_same_bytes(
    table: Path,
    dataset: Path,
    endpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    bucket = f"receipts-{workers}"
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=bucket)
    for name, data in contents(table.parent).items():
        client.put_object(Bucket=bucket, Key=f"in/{name}", Body=data)
    options = [
        f"--s3_endpoint_url={endpoint}",
        "--s3_access_key_id=key",
        "--s3_secret_access_key=secret",
        "--s3_region_name=us-east-1",
    ]
    status = main(
        [
            *("--input", f"s3://{bucket}/in/{table.name}", "--output", f"s3://{bucket}/out"),
            *("--shards=4", "--label=total:float", "--label=language:category"),
            *("--quiet", f"--workers={workers}", *options),
        ]
    )
    assert status == 0
    for entry in client.list_objects_v2(Bucket=bucket, Prefix="out")["Contents"]:
        assert not entry["Key"].startswith("out.staging"), "staging is left"
        path = tmp_path / os.path.relpath(entry["Key"], "out")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read())
    assert contents(tmp_path) == contents(dataset)
    assert verify_main([f"s3://{bucket}/out", "--quiet", "--workers=1", *options]) == 0
