"""A row: what a source read, typed and checked, or a problem with a reason."""

import decimal
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("apache_beam")

from beam_jobs.rejection import Reason, RejectionError
from beam_jobs.sources.row import Row, make_row, parse_boxes, rejected_row
from schemas.receipt import Label

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def made(*, labels: tuple[Label, ...] = (), **values: Any) -> Row:
    given_values = {"id_": "a", "uri": "/a.jpg", "layout": "kiosk", "raw_labels": {}} | values
    return make_row(labels=labels, source="as read", **given_values)


@given(
    id_=TEXT,
    categories=st.dictionaries(TEXT, TEXT, max_size=3),
    labels=st.dictionaries(TEXT, TEXT | st.integers(-(2**63), 2**63 - 1) | NUMBER, max_size=3),
    boxes=st.lists(st.tuples(NUMBER, NUMBER, NUMBER, NUMBER, TEXT), max_size=3).map(tuple),
    problem=st.none() | st.tuples(st.sampled_from(list(Reason)), TEXT),
)
@settings(deadline=None, max_examples=80)
def test_bytes_round_trip(**values: Any) -> None:
    row = Row(id=values.pop("id_"), uri="gs://b/ä.jpg", group="g", source="s", **values)
    again = Row.from_bytes(row.to_bytes())
    assert again == row
    assert again.to_bytes() == row.to_bytes()


def test_equal_rows_give_equal_bytes() -> None:
    one = Row(id="a", uri="b", categories={"x": "1", "y": "2"}, labels={"m": 1, "n": 2})
    two = Row(id="a", uri="b", categories={"y": "2", "x": "1"}, labels={"n": 2, "m": 1})
    assert one.to_bytes() == two.to_bytes()
    assert b'"id":"a"' in one.to_bytes()


def test_a_whole_row() -> None:
    labels = (
        Label(name="company", type="string"),
        Label(name="items", type="int"),
        Label(name="total", type="float"),
        Label(name="currency", type="category"),
    )
    row = made(
        labels=labels,
        layout=" kiosk ",
        group=" shop 7 ",
        raw_labels={"company": " Bäcker ", "items": "3", "total": "9.5", "currency": "EUR", "x": 1},
        boxes='[{"xmin": 1, "ymin": "2", "xmax": 3.5, "ymax": 4, "text": "SUM"}]',
    )
    assert row == Row(
        id="a",
        uri="/a.jpg",
        group="shop 7",
        categories={"layout": "kiosk", "currency": "EUR"},
        labels={"company": "Bäcker", "items": 3, "total": 9.5},
        boxes=((1.0, 2.0, 3.5, 4.0, "SUM"),),
    )


@pytest.mark.parametrize(
    ("type_", "raw", "value"),
    [
        ("int", 7, 7),
        ("int", " -7 ", -7),
        ("int", 7.0, 7),
        ("int", 0, 0),
        ("int", "0", 0),
        ("int", 2**63 - 1, 2**63 - 1),
        ("int", -(2**63), -(2**63)),
        ("int", decimal.Decimal("12"), 12),
        ("float", "1e3", 1000.0),
        ("float", 0, 0.0),
        ("float", -0.5, -0.5),
        ("float", decimal.Decimal("12.5"), 12.5),
        ("float", LARGEST_FLOAT32, LARGEST_FLOAT32),
        ("float", -LARGEST_FLOAT32, -LARGEST_FLOAT32),
        ("string", " ä ", "ä"),
        ("string", 12, "12"),
        ("string", 0, "0"),
        ("category", "EUR", "EUR"),
    ],
)
def test_labels_are_typed(type_: Any, raw: Any, value: Any) -> None:
    row = made(labels=(Label(name="x", type=type_),), raw_labels={"x": raw})
    assert row.problem is None
    found = row.categories if type_ == "category" else row.labels
    assert found["x"] == value
    assert type(found["x"]) is type(value)


@pytest.mark.parametrize("raw", [None, "", "  ", "\t\n"])
@pytest.mark.parametrize("type_", ["string", "int", "float", "category"])
def test_a_label_without_a_value(type_: Any, raw: Any) -> None:
    row = made(labels=(Label(name="x", type=type_),), raw_labels={"x": raw})
    assert row.problem == (Reason.LABEL_MISSING, "label x has no value")


@pytest.mark.parametrize(
    ("type_", "raw", "why"),
    [
        pytest.param("int", "7.0", "invalid literal", id="int_from_fraction_text"),
        pytest.param("int", 7.5, "not a whole number", id="int_from_fraction"),
        pytest.param("int", decimal.Decimal("7.5"), "not a whole number", id="int_from_decimal"),
        pytest.param("int", "1_000", "underscore", id="int_with_an_underscore"),
        pytest.param("float", "1_000.5", "underscore", id="float_with_an_underscore"),
        pytest.param("category", "a\nb", "a category is one line", id="category_of_two_lines"),
        pytest.param("category", "a\rb", "a category is one line", id="category_of_old_mac_lines"),
        pytest.param("int", "seven", "invalid literal", id="int_from_text"),
        pytest.param("int", 2**63, "does not fit 64 bits", id="int_too_large"),
        pytest.param("int", -(2**63) - 1, "does not fit 64 bits", id="int_too_small"),
        pytest.param("int", True, "not a number or text", id="int_from_truth"),
        pytest.param("int", math.inf, "", id="int_from_infinity"),
        pytest.param("float", "9,50", "could not convert", id="float_with_a_comma"),
        pytest.param("float", "nan", "not a finite float32", id="float_nan"),
        pytest.param("float", math.inf, "not a finite float32", id="float_infinite"),
        pytest.param("float", 1e39, "not a finite float32", id="float_too_large"),
        pytest.param("float", 10**400, "too large", id="float_from_a_huge_number"),
        pytest.param("float", {}, "not a number or text", id="float_from_object"),
        pytest.param("string", ["a"], "not a number or text", id="string_from_list"),
        pytest.param("category", {"a": 1}, "not a number or text", id="category_from_object"),
    ],
)
def test_a_label_of_another_type(type_: Any, raw: Any, why: str) -> None:
    row = made(labels=(Label(name="x", type=type_),), raw_labels={"x": raw})
    assert row.problem is not None
    reason, message = row.problem
    assert reason == Reason.LABEL_TYPE
    assert message.startswith(f"label x must be {type_}, got {raw!r}"[:100])
    assert why in message
    assert (row.id, row.uri, row.source) == ("a", "/a.jpg", "as read")


@pytest.mark.parametrize("layout", [None, "", "   "])
def test_a_row_without_a_layout(layout: Any) -> None:
    row = made(layout=layout)
    assert row.problem == (Reason.LAYOUT_MISSING, "the receipt has no layout")
    assert (row.id, row.uri, row.source) == ("a", "/a.jpg", "as read")


@pytest.mark.parametrize(("layout", "name"), [(0, "0"), (17, "17"), (" ä ", "ä")])
def test_a_layout_may_be_a_number(layout: Any, name: str) -> None:
    assert made(layout=layout).categories == {"layout": name}


@pytest.mark.parametrize("layout", [["a"], {"a": 1}, True], ids=["list", "object", "truth"])
def test_a_layout_is_one_name(layout: Any) -> None:
    problem = made(layout=layout).problem
    assert problem is not None
    assert repr(layout) in problem[1]


@pytest.mark.parametrize("kind", ["layout", "group"])
@pytest.mark.parametrize("name", ["a\nb", "a\r\nb", " a\rb"])
def test_layouts_and_groups_are_one_line(kind: str, name: str) -> None:
    assert made(**{kind: name}).problem == (
        Reason.LABEL_TYPE,
        f"the {kind} must be one line, got {name.strip()!r}: in a CSV file, look for a stray quote",
    )


def test_a_long_layout_is_quoted_in_part() -> None:
    problem = made(layout="a\n" + "b" * 10**6).problem
    assert problem is not None
    assert "got 'a\\nbbb" in problem[1]
    assert len(problem[1]) < 300


@pytest.mark.parametrize(("group", "name"), [(None, ""), ("", ""), (" ", ""), (0, "0"), ("g", "g")])
def test_a_group_is_optional(group: Any, name: str) -> None:
    assert made(group=group).group == name


@pytest.mark.parametrize(
    ("raw", "boxes"),
    [
        pytest.param(None, (), id="none"),
        pytest.param("", (), id="empty_text"),
        pytest.param("[]", (), id="empty_json"),
        pytest.param([], (), id="empty_list"),
        pytest.param(
            '[{"xmin": 0, "ymin": 1, "xmax": 2, "ymax": 3}]', ((0.0, 1.0, 2.0, 3.0, ""),), id="json"
        ),
        pytest.param(
            [{"xmin": 0, "ymin": "1", "xmax": 2.5, "ymax": 3, "text": "€", "more": 1}],
            ((0.0, 1.0, 2.5, 3.0, "€"),),
            id="list",
        ),
        pytest.param(
            [{"xmin": 0, "ymin": 1, "xmax": 2, "ymax": 3, "text": None}],
            ((0.0, 1.0, 2.0, 3.0, ""),),
            id="null",
        ),
        pytest.param(
            [{"xmin": 0, "ymin": 1, "xmax": 2, "ymax": 3, "text": 0}],
            ((0.0, 1.0, 2.0, 3.0, "0"),),
            id="zero",
        ),
    ],
)
def test_parses_boxes(raw: Any, boxes: Any) -> None:
    assert parse_boxes(raw) == boxes


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("[", id="broken_json"),
        pytest.param("[" * 100_000, id="deep_json"),
        pytest.param('[{"xmin": 0, "xmin": 1, "ymin": 1, "xmax": 2, "ymax": 3}]', id="side_twice"),
        pytest.param([{"xmin": "1_0", "ymin": 1, "xmax": 20, "ymax": 3}], id="underscore"),
        pytest.param("3", id="number"),
        pytest.param({"xmin": 1}, id="object"),
        pytest.param([[0, 1, 2, 3]], id="list_of_lists"),
        pytest.param([{"xmin": 0, "ymin": 1, "xmax": 2}], id="side_missing"),
        pytest.param([{"xmin": None, "ymin": 1, "xmax": 2, "ymax": 3}], id="side_null"),
        pytest.param([{"xmin": "left", "ymin": 1, "xmax": 2, "ymax": 3}], id="side_text"),
        pytest.param([{"xmin": 10**400, "ymin": 1, "xmax": 2, "ymax": 3}], id="side_huge"),
    ],
)
def test_refuses_boxes(raw: Any) -> None:
    sentence = "boxes must be a list of objects with xmin, ymin, xmax, ymax and text: "
    with pytest.raises(RejectionError, match=sentence) as caught:
        parse_boxes(raw)
    assert caught.value.reason == Reason.BOXES_INVALID
    assert caught.value.message.startswith(sentence)


@pytest.mark.parametrize("side", [math.nan, math.inf, -math.inf, "nan", "1e999"])
def test_refuses_boxes_that_are_not_finite(side: Any) -> None:
    with pytest.raises(RejectionError, match=r"box \(.*has a side that is not finite") as caught:
        parse_boxes([{"xmin": 0, "ymin": side, "xmax": 2, "ymax": 3}])
    assert caught.value.reason == Reason.BOXES_INVALID


def test_bad_boxes_are_the_rows_problem() -> None:
    row = made(boxes="[3]")
    assert row.problem is not None
    assert row.problem[0] == Reason.BOXES_INVALID
    assert (row.id, row.boxes) == ("a", ())


def test_a_rejected_row_without_an_id_is_named_after_its_contents() -> None:
    one, same, other = (rejected_row(text, Reason.BAD_ROW, "m") for text in ("a", "a", "b"))
    assert one.id.startswith("row:")
    assert one.id == same.id != other.id
    assert (one.source, one.uri, one.problem) == ("a", "", ("bad_row", "m"))
    assert rejected_row("a", Reason.BAD_ROW, "m", id_="x", uri="y").id == "x"


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb"], ids=["lone_surrogate", "undecodable_name"])
@pytest.mark.parametrize("field", ["id_", "uri", "layout", "group"])
def test_text_that_is_not_unicode_can_still_be_quarantined(field: str, text: str) -> None:
    row = made(**{field: text})
    assert row.problem is not None
    assert row.problem[0] == Reason.BAD_ROW
    assert Row.from_bytes(row.to_bytes()).problem == row.problem


@pytest.mark.parametrize("name", ["layout", "total"])
def test_nan_is_no_value(name: str) -> None:
    """Tables hold NaN where a cell is empty."""
    values = {"layout": "kiosk", "total": 1.5, name: math.nan}
    row = make_row(
        id_="a",
        uri="a",
        layout=values["layout"],
        group=math.nan,
        raw_labels=values,
        labels=[Label(name="total", type="float")],
        source="",
    )
    expected = {"layout": Reason.LAYOUT_MISSING, "total": Reason.LABEL_MISSING}
    assert row.problem is not None
    assert row.problem[0] == expected[name]
    assert row.group == ""


@pytest.mark.parametrize("raw", [["a"], {"a": 1}, True, math.inf, 2.0**60])
def test_a_group_is_one_name(raw: Any) -> None:
    problem = made(group=raw).problem
    assert problem is not None
    assert problem[0] == Reason.LABEL_TYPE
    assert problem[1].startswith(f"the group must be a name, got {raw!r}")


def test_names_of_a_row_are_equal_in_all_forms() -> None:
    """MacOS writes é as two characters, and pandas 7 as 7.0."""
    labels = (Label(name="shop", type="category"), Label(name="note", type="string"))
    nfd, nfc = "Jose\u0301", "Jos\u00e9"
    row = made(
        labels=labels,
        id_=nfd,
        uri=f"/{nfd}.jpg",
        layout=nfd,
        group=nfd,
        raw_labels={"shop": nfd, "note": nfd},
    )
    assert (row.id, row.group, row.categories) == (nfc, nfc, {"layout": nfc, "shop": nfc})
    assert row.uri == f"/{nfd}.jpg"  # the file's own name
    assert row.labels == {"note": nfd}  # no name
    row = made(labels=labels, layout=7.0, group=8.0, raw_labels={"shop": 9.0, "note": "x"})
    assert (row.group, row.categories) == ("8", {"layout": "7", "shop": "9"})


@pytest.mark.parametrize(
    ("raw", "stored"),
    [
        ("16777217", "16777216.00"),
        (25590001, "25590000.00"),
        ("123456789", "123456792.00"),
        ("1234567.89", "1234567.88"),
        (-200000.01, "-200000.02"),
    ],
)
def test_an_amount_that_float32_changes_is_refused(raw: Any, stored: str) -> None:
    assert f"{np.float32(raw):.2f}" == stored
    row = made(labels=(Label(name="total", type="float"),), raw_labels={"total": raw})
    assert row.problem == (
        Reason.LABEL_TYPE,
        f"label total must be float, got {raw!r}: as float32 it is {stored}; declare the label int "
        "or string",
    )


@pytest.mark.parametrize("raw", ["1e-50", 1e-40, -1e-300])
def test_a_number_that_is_too_small_for_float32_is_refused(raw: Any) -> None:
    row = made(labels=(Label(name="total", type="float"),), raw_labels={"total": raw})
    assert row.problem is not None
    assert row.problem[1].endswith("too small for a float32")


@given(
    st.integers(-(2**24), 2**24) | st.integers(-(2**16) * 100, 2**16 * 100).map(lambda n: n / 100)
)
def test_amounts_that_float32_holds_are_kept(value: float) -> None:
    assert round(float(np.float32(value)), 2) == value
    row = made(labels=(Label(name="total", type="float"),), raw_labels={"total": value})
    assert (row.problem, row.labels) == (None, {"total": value})


@pytest.mark.parametrize("value", [1 / 3, 1e6 / 3, 1234567.891, 1.5e30, 1e-37, 2.0**60, 33554432])
def test_measurements_are_rounded_to_float32(value: float) -> None:
    row = made(labels=(Label(name="total", type="float"),), raw_labels={"total": value})
    assert row.labels == {"total": value}


def test_boxes_in_fractions_are_refused() -> None:
    box = {"xmin": 0.1, "ymin": 0.1, "xmax": 0.9, "ymax": 0.2, "text": "a"}
    row = made(boxes=[box, {**box, "xmax": 1, "ymax": 1}])
    assert row.problem == (
        Reason.BOXES_INVALID,
        "all boxes lie within one pixel, such as (0.1, 0.1, 0.9, 0.2, 'a'): they seem to be "
        "fractions of the image, write pixels",
    )
    assert made(boxes=[box, {**box, "xmax": 1.5}]).problem is None


@pytest.mark.parametrize(
    "values",
    [
        {"layout": "a\n" + "b" * 10**6},
        {"layout": ["b" * 10**6]},
        {"group": "b" * 10**6},
        {"raw_labels": {"total": "b" * 10**6}},
        {"raw_labels": {"total": 1, "shop": "b" * 10**6}},
        {"boxes": "[" * 10**6},
        {"boxes": [{"xmin": "b" * 10**6}]},
        {"boxes": [{"b" * 10**6: 1}]},
        {"boxes": '[{"' + "b" * 10**6 + '": 1, "' + "b" * 10**6 + '": 1}]'},
        {"boxes": [{"xmin": 0, "ymin": "nan", "xmax": 2, "ymax": 3, "text": "b" * 10**6}]},
        {"boxes": [{"xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1, "text": "b" * 10**6}]},
    ],
)
def test_no_value_of_a_megabyte_fills_a_message_or_the_quarantine(values: dict[str, Any]) -> None:
    labels = (Label(name="total", type="float"), Label(name="shop", type="category"))
    given_values = {"raw_labels": {"total": 1, "shop": "x"}} | values
    row = make_row(
        id_="a", uri="/a", labels=labels, source=str(values), **{"layout": "x", **given_values}
    )
    assert row.problem is not None
    assert len(row.problem[1]) < 500
    assert len(row.to_bytes()) < 70_000
