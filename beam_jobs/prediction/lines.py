"""A line of JSON for each input: its id and the model's values for it."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from beam_jobs.prediction.records import split_of
from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.sources.row import Row
from schemas.predictions import ModelOutput
from schemas.receipt import LAYOUT


def json_line(
    row: Row, values: Mapping[str, npt.NDArray[Any]], outputs: Sequence[ModelOutput]
) -> bytes:
    """Makes the line of an input, without its end.

    A float32 is written with as many digits as tell it from any other float32.

    Args:
      row: the input.
      values: name to the value of this image.
      outputs: what the values are.

    Raises:
      RejectionError: a number is not finite, or a text is not UTF-8.
    """
    known = {"id": row.id, LAYOUT: row.categories.get(LAYOUT) or None}
    if split := split_of(row):
        known["split"] = split
    predictions = {output.name: _plain(values[output.name], output) for output in outputs}
    return orjson.dumps({**known, "predictions": predictions}, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any, output: ModelOutput) -> Any:
    """Returns a value as orjson takes it."""
    if output.dtype == "string":
        return _text(value, output)
    if not np.isfinite(value).all():
        raise RejectionError(
            Reason.NOT_FINITE, f"the model gives a value of {output.name!r} that is not finite"
        )
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value


def _text(value: Any, output: ModelOutput) -> Any:
    if isinstance(value, np.ndarray):
        return [_text(each, output) for each in value]
    if output.is_binary:
        return base64.b64encode(value).decode()
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise RejectionError(
            Reason.MODEL_FAILED,
            f"the model gives a text of {output.name!r} that is not UTF-8: export it under a name "
            "that ends in _bytes, if it is none",
        ) from error
