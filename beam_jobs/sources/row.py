"""A manifest row: one receipt as its source describes it, never with image bytes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Self

import orjson

from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.sources import strict_json
from schemas.receipt import LAYOUT, Label

Box = tuple[float, float, float, float, str]  # xmin, ymin, xmax, ymax in pixels, transcript
_SHOWN_CHARACTERS = 100  # of a value, in a message
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One input.

    Attributes:
      id: unique name of the receipt.
      uri: where its image lies; "" if the source names none.
      group: receipts of one group never part between splits; "" for none.
      categories: layout and every category label.
      labels: the other labels, typed.
      boxes: text lines in pixels of the image as its file stores it.
      problem: reason code and message if the row itself already is bad.
      source: a bad row as it was read, for the quarantine.
    """

    id: str
    uri: str
    group: str = ""
    categories: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str | int | float] = field(default_factory=dict)
    boxes: Sequence[Box] = ()
    problem: tuple[str, str] | None = None
    source: str = ""

    def to_bytes(self) -> bytes:
        """Canonical form: equal rows give equal bytes."""
        return orjson.dumps(vars(self), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        values = orjson.loads(data)
        problem = values.pop("problem")
        boxes = tuple(tuple(box) for box in values.pop("boxes"))
        return cls(problem=tuple(problem) if problem else None, boxes=boxes, **values)


def rejected_row(source: str, reason: Reason, message: str, *, id_: str = "", uri: str = "") -> Row:
    """A row that goes to quarantine; without an id it is named after its contents."""
    source, message, id_, uri = (_unicode(each) for each in (source, message, id_, uri))
    return Row(
        id=id_ or f"row:{blake2b(source.encode(), digest_size=8).hexdigest()}",
        uri=uri,
        problem=(reason, message),
        source=source,
    )


def make_row(
    *,
    id_: str,
    uri: str,
    layout: Any,
    group: Any = None,
    raw_labels: Mapping[str, Any],
    boxes: Any = None,
    labels: Iterable[Label],
    source: str,
) -> Row:
    """Checks and types what a source read; what is wrong becomes the row's problem."""
    try:
        values = {label.name: _typed(label, raw_labels.get(label.name)) for label in labels}
        names = {label.name for label in labels if label.type == "category"}
        if _absent(layout):
            raise RejectionError(Reason.LAYOUT_MISSING, "the receipt has no layout")
        if isinstance(layout, list | dict | bool):
            raise RejectionError(
                Reason.LABEL_TYPE, f"the layout must be a name, got {_shown(layout)}"
            )
        layout_name = str(layout).strip()
        group_name = "" if _absent(group) else str(group).strip()
        for kind, name in (("layout", layout_name), ("group", group_name)):
            if _breaks(name):
                raise RejectionError(
                    Reason.LABEL_TYPE,
                    f"the {kind} must be one line, got {_shown(name)}: in a CSV file, look for a "
                    "stray quote",
                )
        row = Row(
            id=id_,
            uri=uri,
            group=group_name,
            categories={LAYOUT: layout_name} | {name: str(values[name]) for name in names},
            labels={name: value for name, value in values.items() if name not in names},
            boxes=parse_boxes(boxes),
        )
        "".join((id_, uri, row.group, *row.categories.values())).encode()
        "".join([str(value) for value in row.labels.values()]).encode()
        "".join([box[4] for box in row.boxes]).encode()
        return row
    except UnicodeEncodeError as error:
        return rejected_row(source, Reason.BAD_ROW, f"not Unicode: {error}", id_=id_, uri=uri)
    except RejectionError as error:
        return rejected_row(source, error.reason, error.message, id_=id_, uri=uri)


def parse_boxes(raw: Any) -> tuple[Box, ...]:
    """Boxes from a list of objects with xmin, ymin, xmax, ymax and text, or its JSON.

    Raises:
      RejectionError: the value has another form or a number in it is not finite.
    """
    if _absent(raw):
        return ()
    try:
        items = strict_json.loads(raw) if isinstance(raw, str | bytes) else raw
        boxes: tuple[Any, ...] = tuple(
            [(*[number(item[side]) for side in _SIDES], _text(item.get("text"))) for item in items]
        )
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise RejectionError(
            Reason.BOXES_INVALID,
            f"boxes must be a list of objects with {', '.join(_SIDES)} and text: {error!r}",
        ) from error
    for box in boxes:
        if not math.isfinite(box[0] + box[1] + box[2] + box[3]):
            raise RejectionError(Reason.BOXES_INVALID, f"box {box} has a side that is not finite")
    return boxes


def number(raw: Any) -> float:
    """The number that a value is or spells.

    Raises:
      ValueError, TypeError, OverflowError: it is none.
    """
    return float(_plain(raw))


def _plain(raw: Any) -> Any:
    """The value, unless it is a text that only Python takes for a number."""
    if isinstance(raw, str) and "_" in raw:
        raise ValueError("a number has no underscore")
    return raw


def _typed(label: Label, raw: Any) -> str | int | float:
    if _absent(raw):
        raise RejectionError(Reason.LABEL_MISSING, f"label {label.name} has no value")
    try:
        if isinstance(raw, list | dict | bool):
            raise ValueError("not a number or text")
        if label.type == "int":
            if not isinstance(raw, str) and raw != int(raw):
                raise ValueError("not a whole number")
            value: str | int | float = int(_plain(raw))
            if not -(2**63) <= int(value) < 2**63:
                raise ValueError("does not fit 64 bits")
        elif label.type == "float":
            value = number(raw)
            if not abs(value) <= 3.4028234663852886e38:
                raise ValueError("not a finite float32")
        else:
            value = str(raw).strip()
            if label.type == "category" and _breaks(value):
                raise ValueError("a category is one line; in a CSV file, look for a stray quote")
    except (ValueError, TypeError, OverflowError) as error:
        raise RejectionError(
            Reason.LABEL_TYPE,
            f"label {label.name} must be {label.type}, got {_shown(raw)}: {error}",
        ) from error
    return value


def _breaks(name: str) -> bool:
    """Whether a name holds a line break, as it does where a stray quote has joined lines."""
    return "\n" in name or "\r" in name


def _shown(raw: Any) -> str:
    text = repr(raw)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _unicode(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _text(raw: Any) -> str:
    if isinstance(raw, str):
        return raw if raw.strip() else ""
    return "" if _absent(raw) else str(raw)


def _absent(raw: Any) -> bool:
    if isinstance(raw, str):
        return not raw.strip()
    return raw is None or (isinstance(raw, float) and math.isnan(raw))
