"""A row: one receipt as its source describes it, never with image bytes."""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, Self

import orjson

from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.shown import MESSAGE_CHARACTERS, shortened, shown
from beam_jobs.sources import strict_json
from beam_jobs.sources.names import in_nfc, is_absent, parse_key, parse_name
from schemas.quarantine import UNNAMED_ROW
from schemas.receipt import LAYOUT, Label

Box = tuple[float, float, float, float, str]  # xmin, ymin, xmax, ymax in pixels, transcript
_MAX_FLOAT32 = 3.4028234663852886e38
_MIN_FLOAT32 = 1.1754943508222875e-38  # smaller ones have fewer digits
_EXACT_AMOUNTS = 2**16  # up to which float32 has numbers within half a cent of each other
_MAX_EXACT = 2**53
MAX_SOURCE_CHARACTERS = 1 << 16  # of a row in the quarantine: one with hundreds of boxes is whole
_FLOAT32 = struct.Struct("<f")
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One input.

    Attributes:
      id: unique name of the receipt.
      uri: where its image lies; "" if the source names none.
      group: shop, user or device, whose receipts all go to the same split; "" for none.
      categories: layout and every category label.
      labels: the other labels, typed.
      boxes: text lines in pixels of the image as its file stores it.
      problem: reason code and message if the row is rejected as it stands.
      source: a rejected row as it was read, for the quarantine.
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
        """Serializes the row; equal rows give equal bytes."""
        return orjson.dumps(vars(self), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        values = orjson.loads(data)
        problem = values.pop("problem")
        boxes = tuple(tuple(box) for box in values.pop("boxes"))
        return cls(problem=tuple(problem) if problem else None, boxes=boxes, **values)


def rejected_row(source: str, reason: Reason, message: str, *, id_: str = "", uri: str = "") -> Row:
    """Makes a row that goes to the quarantine; without an id it is named after its contents.

    A source that is longer than 65,536 characters is cut: a column may hold images.
    """
    source, message, id_, uri = (_unicode(text) for text in (source, message, id_, uri))
    return Row(
        id=id_ or f"{UNNAMED_ROW}{blake2b(source.encode(), digest_size=8).hexdigest()}",
        uri=uri,
        problem=(reason, shortened(message, MESSAGE_CHARACTERS)),
        source=shortened(source, MAX_SOURCE_CHARACTERS),
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
    needs_layout: bool = True,
) -> Row:
    """Checks the values that a source read and gives labels their types.

    The first fault found becomes the `problem` of the row. Where no layout is needed, that of a row
    without one is "". Names are in Unicode's form NFC, but for `uri`, which is the file's own.
    """
    id_ = in_nfc(id_)
    try:
        values = {label.name: _typed(label, raw_labels.get(label.name)) for label in labels}
        names = {label.name for label in labels if label.type == "category"}
        layout_name, group_name = _name("layout", layout), _name("group", group)
        if needs_layout and not layout_name:
            raise RejectionError(Reason.LAYOUT_MISSING, "the receipt has no layout")
        row = Row(
            id=id_,
            uri=uri,
            group=group_name,
            categories={LAYOUT: layout_name} | {name: str(values[name]) for name in names},
            labels={name: value for name, value in values.items() if name not in names},
            boxes=parse_boxes(boxes),
        )
        _check_unicode(row)
        return row
    except UnicodeEncodeError as error:
        message = _not_unicode(uri, error)
        return rejected_row(source, Reason.BAD_ROW, message, id_=id_, uri=uri)
    except RejectionError as error:
        return rejected_row(source, error.reason, error.message, id_=id_, uri=uri)


def _name(kind: Literal["layout", "group"], raw: Any) -> str:
    try:
        name = (parse_name if kind == "layout" else parse_key)(kind, raw)
        if _has_line_break(name):
            raise ValueError(
                f"the {kind} must be one line, got {shown(name)}: in a CSV file, look for a stray "
                "quote"
            )
    except ValueError as error:
        raise RejectionError(Reason.LABEL_TYPE, str(error)) from error
    return name


def _not_unicode(uri: str, error: UnicodeEncodeError) -> str:
    try:
        uri.encode()
    except UnicodeEncodeError:
        return "the name of the file is not UTF-8: rename it, for example with convmv"
    return f"a text is not Unicode: {error}"


def _check_unicode(row: Row) -> None:
    r"""Raises UnicodeEncodeError if a text of a row can't be written as UTF-8.

    Sources read bytes that are not UTF-8 as lone surrogates, which Python's texts may hold and
    UTF-8 may not: "\udcff" for the byte FF.
    """
    names = [row.id, row.uri, row.group, *row.categories.values()]
    labels = [str(value) for value in row.labels.values()]
    transcripts = [box[4] for box in row.boxes]
    for texts in (names, labels, transcripts):
        "".join(texts).encode()


def parse_boxes(raw: Any) -> tuple[Box, ...]:
    """Reads boxes from a list of objects with xmin, ymin, xmax, ymax and text, or from its JSON.

    Raises:
      RejectionError: the value has another form or a number in it is not finite.
    """
    if is_absent(raw):
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
            f"boxes must be a list of objects with {', '.join(_SIDES)} and text: "
            f"{shortened(repr(error))}",
        ) from error
    for box in boxes:
        # One sum instead of four calls: it is not finite if a side is not.
        if not math.isfinite(box[0] + box[1] + box[2] + box[3]):
            raise RejectionError(
                Reason.BOXES_INVALID, f"box {shown(box)} has a side that is not finite"
            )
    # The first box of a receipt in pixels ends this test.
    if boxes and all(max(box[:4]) <= 1 for box in boxes):
        raise RejectionError(
            Reason.BOXES_INVALID,
            f"all boxes lie within one pixel, such as {shown(boxes[0])}: they seem to be fractions "
            "of the image, write pixels",
        )
    return boxes


def number(raw: Any) -> float:
    """Returns the number that a value is or spells.

    Raises:
      ValueError, TypeError, OverflowError: it is not a number.
    """
    return float(_plain(raw))


def _plain(raw: Any) -> Any:
    """Returns the value, unless it is a text that only Python takes for a number, as 1_000."""
    if isinstance(raw, str) and "_" in raw:
        raise ValueError("a number has no underscore")
    return raw


def _typed(label: Label, raw: Any) -> str | int | float:
    if is_absent(raw):
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
            _check_float32(value)
        elif label.type == "string":
            value = str(raw).strip()
        else:
            value = parse_name("category", raw)
            if _has_line_break(value):
                raise ValueError("a category is one line; in a CSV file, look for a stray quote")
    except (ValueError, TypeError, OverflowError) as error:
        raise RejectionError(
            Reason.LABEL_TYPE,
            f"label {label.name} must be {label.type}, got {shown(raw)}: {shortened(str(error))}",
        ) from error
    return value


def _check_float32(value: float) -> None:
    """Raises ValueError if float32 does not hold a number, or changes an amount of money.

    The total 16777217 would become 16777216, and 1234567.89 would become 1234567.88. Any number
    with more than two decimals is taken for a measurement: 6e-8 of it at most is lost.
    """
    if not abs(value) <= _MAX_FLOAT32:  # also rejects NaN
        raise ValueError("not a finite float32")
    if 0 < abs(value) < _MIN_FLOAT32:
        raise ValueError("too small for a float32")
    if _EXACT_AMOUNTS <= abs(value) < _MAX_EXACT and value == round(value, 2):
        [stored] = _FLOAT32.unpack(_FLOAT32.pack(value))
        if round(stored, 2) != value:
            raise ValueError(f"as float32 it is {stored:.2f}; declare the label int or string")


def _has_line_break(name: str) -> bool:
    """Returns whether a name holds a line break, as it does where a stray quote joined lines."""
    return "\n" in name or "\r" in name


def _unicode(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _text(raw: Any) -> str:
    if isinstance(raw, str):
        return raw if raw.strip() else ""
    return "" if is_absent(raw) else str(raw)
