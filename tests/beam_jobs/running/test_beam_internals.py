"""Private attributes of Beam's runners that are used, named if one is missing."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("apache_beam")

import apache_beam as beam
from apache_beam.options import pipeline_options
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.transforms import userstate


def _control_connection() -> Any:
    return worker_handlers.ControlConnection()


def _servicer() -> Any:
    return worker_handlers.BeamFnControlServicer


def _option_classes() -> Any:
    return pipeline_options.DirectOptions


def _userstate() -> Any:
    return userstate


def _module() -> Any:
    return pipeline_options


@pytest.mark.parametrize(
    ("module", "owner", "attribute"),
    [
        ("beam_start", _userstate, "get_dofn_specs"),
        ("local_worker_handler", _control_connection, "_futures_by_id"),
        ("local_worker_handler", _control_connection, "_read_thread"),
        ("local_worker_handler", _servicer, "_DONE_MARKER"),
        ("runner", _option_classes, "_add_argparse_args"),
        ("runner", _module, "_BeamArgumentParser"),
    ],
)
def test_attribute_is_there(module: str, owner: Callable[[], Any], attribute: str):
    found = owner()
    name = getattr(found, "__name__", type(found).__name__)
    assert hasattr(found, attribute), (
        f"Beam {beam.__version__} has no {name}.{attribute} any more: "
        f"beam_jobs.running.{module} needs it"
    )
