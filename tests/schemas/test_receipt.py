"""The feature table and the labels that extend it."""

import re

import pytest

from schemas.receipt import (
    LABEL_TYPES,
    Feature,
    Label,
    categories,
    id_feature,
    receipt_features,
)

LABELS = (
    Label(name="company", type="string"),
    Label(name="items", type="int"),
    Label(name="total", type="float"),
    Label(name="currency", type="category"),
)
UNLABELED = [
    ("image/encoded", "bytes", False),
    ("image/format", "string", False),
    ("image/height", "int64", False),
    ("image/width", "int64", False),
    ("image/channels", "int64", False),
    ("image/source_id", "string", False),
    ("image/key/sha256", "string", False),
    ("image/key/pixels", "string", False),
    ("image/object/bbox/xmin", "float32", True),
    ("image/object/bbox/ymin", "float32", True),
    ("image/object/bbox/xmax", "float32", True),
    ("image/object/bbox/ymax", "float32", True),
    ("image/object/text", "string", True),
    ("receipt/group", "string", False),
    ("receipt/layout", "string", False),
    ("receipt/layout_id", "int64", False),
]


def table(features: tuple[Feature, ...]) -> list[tuple[str, str, bool]]:
    return [(each.name, each.dtype, each.ragged) for each in features]


def test_features_without_labels() -> None:
    assert table(receipt_features()) == UNLABELED
    assert all(each.doc for each in receipt_features())


def test_features_with_a_label_of_each_type() -> None:
    assert {label.type for label in LABELS} == set(LABEL_TYPES)
    assert table(receipt_features(LABELS)) == [
        *UNLABELED,
        ("receipt/company", "string", False),
        ("receipt/items", "int64", False),
        ("receipt/total", "float32", False),
        ("receipt/currency", "string", False),
        ("receipt/currency_id", "int64", False),
    ]


def test_categories_are_the_layout_and_the_category_labels() -> None:
    assert categories(()) == ("layout",)
    assert categories(LABELS) == ("layout", "currency")
    names = {each.name for each in receipt_features(LABELS)}
    assert {id_feature(name) for name in categories(LABELS)} <= names


@pytest.mark.parametrize("type_", LABEL_TYPES)
def test_parses_every_type(type_: str) -> None:
    assert Label.parse(f"net_total2:{type_}") == Label(name="net_total2", type=type_)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(
            "total",
            "label 'total' has no type: write NAME:TYPE, TYPE one of string, int, float, category",
            id="no_type",
        ),
        pytest.param(
            "",
            "label '' has no type: write NAME:TYPE, TYPE one of string, int, float, category",
            id="empty",
        ),
        pytest.param(
            "total:double",
            "label type 'double' of 'total' is unknown: choose one of string, int, float, category",
            id="unknown_type",
        ),
        pytest.param(
            "total:",
            "label type '' of 'total' is unknown: choose one of string, int, float, category",
            id="empty_type",
        ),
        *(
            pytest.param(
                f"{name}:float",
                f"label name {name!r} is not allowed: use lower-case letters, digits and "
                "underscores, starting with a letter",
                id=f"name_{name!r}",
            )
            for name in ("", "Total", "2nd", "net-total", "süß", "a b", "_total", "total\n")
        ),
        *(
            pytest.param(
                f"{name}:string",
                f"label name {name!r} is taken by the library (reserved: boxes, "
                "channels, group, height, id, image, label, layout, length, offset, row, seed, "
                "step, text, weight, width and names ending in _id): rename it",
                id=f"name_{name}",
            )
            for name in (
                "layout",
                "group",
                "weight",
                "text",
                "offset",
                "length",
                "height",
                "width",
                "channels",
                "layout_id",
                "shop_id",
            )
        ),
    ],
)
def test_refuses_a_label(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Label.parse(text)


def test_refuses_a_label_declared_twice() -> None:
    twice = (*LABELS, Label(name="total", type="int"))
    with pytest.raises(ValueError, match=r"^label 'total' is declared 2 times: keep one$"):
        receipt_features(twice)
