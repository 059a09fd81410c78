"""Names in the staging directory: those of older versions, and none but a build's."""

import pytest

pytest.importorskip("apache_beam")

from beam_jobs.prepare.staging import Staging, is_staging_file

STAGING = Staging("out/")
DIGEST, SHA256, LAUNCH = bytes(range(16)), "a" * 64, "b" * 32
CHUNK = "prepared/0000012-000102030405060708090a0b0c0d0e0f"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (STAGING.marker, "BUILD"),
        (STAGING.inputs, "inputs.json"),
        (STAGING.rows(SHA256), f"rows/{SHA256}"),
        (STAGING.begun(12, DIGEST), f"{CHUNK}.begun"),
        (STAGING.records(12, DIGEST), f"{CHUNK}.tfrecord"),
        (STAGING.sidecar(12, DIGEST), f"{CHUNK}.npz"),
        (STAGING.references(SHA256), f"references/{SHA256}"),
        (STAGING.plan, "plan.json"),
        (STAGING.starts, "starts"),
        (f"{STAGING.finished(LAUNCH)}/manifest.json", f"finished-{LAUNCH}/manifest.json"),
        (STAGING.publishing, "publishing"),
        (STAGING.report, "report.json"),
        (
            Staging(STAGING.dry_run(LAUNCH)).plan,
            f"dry-run-{LAUNCH}/_staging/plan.json",
        ),
    ],
)
def test_a_build_finds_what_an_older_version_has_left(path: str, name: str) -> None:
    assert path == f"out/_staging/{name}"
    assert is_staging_file(f"_staging/{name}", marked=True)
    unmistakable = name.startswith(("rows/", "dry-run-"))
    assert is_staging_file(f"_staging/{name}", marked=False) == unmistakable


@pytest.mark.parametrize(
    "name",
    [
        "plan.json",
        "_staging/planXjson",
        "_staging/plan.json/more",
        "_staging/rows/thesis.txt",
        f"_staging/{CHUNK}.txt",
        f"_staging/{CHUNK}Xnpz",
        f"_staging/finished-{LAUNCH}",
    ],
)
def test_other_names_are_foreign(name: str) -> None:
    assert not is_staging_file(name, marked=True)
