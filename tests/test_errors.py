"""The user's sentence is found again in whatever a runner makes of the error."""

import pytest

pytest.importorskip("apache_beam")

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from beam_jobs.errors import BuildError, build_error_in

SENTENCE = "3 of 4 inputs are bad:\n  3  corrupt, such as a.jpg: broken\nMend them."


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
