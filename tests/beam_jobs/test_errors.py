"""The user's sentence is found again in whatever a runner makes of the error."""

import pytest

pytest.importorskip("apache_beam")

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from beam_jobs.errors import BuildError, build_error_in, failure_in

SENTENCE = "3 of 4 inputs were rejected:\n  3  corrupt, such as a.jpg: broken\nFix them."


def _fails(_: int) -> None:
    raise BuildError(SENTENCE)


def _fails_otherwise(_: int) -> None:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(BuildError("no receipts"), "no receipts", id="itself"),
        pytest.param(BuildError(SENTENCE), SENTENCE, id="several_lines"),
        pytest.param(
            BuildError("no receipts [while running 'Plan']"), "no receipts", id="renamed_by_beam"
        ),
        pytest.param(
            RuntimeError(
                'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'
                "beam_jobs.errors.BuildError: no receipts [while running 'Plan']\n\n"
                "During handling of the above exception, another exception occurred:\n\n"
                "RuntimeError: beam_jobs.errors.BuildError: no receipts [while running 'Plan']"
            ),
            "no receipts",
            id="in_a_workers_traceback",
        ),
        pytest.param(
            RuntimeError(f"beam_jobs.errors.BuildError: {SENTENCE}\n\nDuring handling of …"),
            SENTENCE,
            id="several_lines_in_a_traceback",
        ),
        pytest.param(RuntimeError("out of memory"), None, id="another_error"),
        pytest.param(RuntimeError("other.errors.BuildErrors: no"), None, id="a_namesake"),
        pytest.param(KeyboardInterrupt(), None, id="interrupted"),
    ],
)
def test_build_error_in(error: BaseException, message: str | None) -> None:
    assert build_error_in(error) == message


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        pytest.param(_fails, SENTENCE, id="build_error"),
        pytest.param(_fails_otherwise, None, id="another_error"),
    ],
)
def test_in_what_beam_raises(fails: object, message: str | None) -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | beam.Create([1]) | "Fail" >> beam.Map(fails)
    with pytest.raises((BuildError, ZeroDivisionError, RuntimeError)) as caught:
        pipeline.run().wait_until_finish()
    assert build_error_in(caught.value) == message


FULL = (
    "files can't be written any more: No space left on device; once that is fixed, the same "
    "command resumes where it stopped"
)
KILLED = (
    "a worker process was killed, probably for lack of memory: give it more, or set fewer "
    "--workers; the same command resumes where it stopped"
)
KILLED_WORKER = "a worker process was killed"
CRASHED_WORKER = "a worker process crashed (Aborted)"
CRASHED = (
    "a worker process crashed (Aborted), as a decoder does on a damaged image; the same command "
    "resumes where it stopped, and rejects an image that ends its process again"
)


@pytest.mark.parametrize(
    ("error", "threads", "sentence"),
    [
        pytest.param(BuildError("no receipts"), [KILLED_WORKER], "no receipts", id="build_error"),
        pytest.param(OSError(28, "No space left on device"), [], FULL, id="disk_full"),
        pytest.param(
            RuntimeError("OSError: [Errno 28] No space left on device: '/x' [while running 'P']"),
            [],
            FULL,
            id="disk_full_in_a_workers_traceback",
        ),
        pytest.param(
            BeamIOError("Rename failed", {("a", "b"): OSError(OSError(28, "No space left"))}),
            [],
            FULL,
            id="disk_full_in_beams_own_error",
        ),
        pytest.param(
            OSError(30, "Read-only file system"),
            [],
            FULL.replace("No space left on device", "Read-only file system"),
            id="read_only",
        ),
        pytest.param(RuntimeError("Channel closed"), ["", KILLED_WORKER], KILLED, id="killed"),
        pytest.param(RuntimeError("Channel closed"), ["", CRASHED_WORKER], CRASHED, id="crashed"),
        pytest.param(
            RuntimeError("Channel closed"),
            ["a worker process ended with status 1"],
            None,
            id="worker_failed",
        ),
        pytest.param(PermissionError(13, "Permission denied"), [], None, id="another_os_error"),
        pytest.param(RuntimeError("out of memory"), [], None, id="another_error"),
    ],
)
def test_failure_in(error: BaseException, threads: list[str], sentence: str | None) -> None:
    assert failure_in(error, threads) == sentence


def test_a_job_that_a_cluster_has_ended() -> None:
    failed = "Pipeline job-1_5f8c failed in state FAILED: "
    message = failure_in(RuntimeError(f"{failed}java.lang.Exception: CANCELLED: client cancelled"))
    assert message == (
        "the cluster ended the job: java.lang.Exception: CANCELLED: client cancelled; if a worker "
        "or a machine was lost, the same command resumes where it stopped"
    )
    raised = "Error received from SDK harness for instruction 3: Traceback (most recent call last):"
    assert failure_in(RuntimeError(f"{failed}{raised}\n  File ...\nZeroDivisionError")) is None
    assert failure_in(RuntimeError(f"{failed}{raised}\nbeam_jobs.errors.BuildError: no")) == "no"
