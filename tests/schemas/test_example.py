"""The Example encoder: its wire bytes, its inverse, and what it refuses."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.example import (
    decode_example,
    encode_example,
    extend_example,
    find_bytes,
    parse_example,
)
from schemas.receipt import Dtype, Feature


def feature(name: str, dtype: Dtype, *, ragged: bool = False) -> Feature:
    return Feature(name=name, dtype=dtype, ragged=ragged, doc="of a test")


ALL_KINDS = (
    feature("a/int", "int64"),
    feature("b/floats", "float32", ragged=True),
    feature("c/text", "string"),
    feature("d/bytes", "bytes"),
    feature("e/texts", "string", ragged=True),
    feature("f/ints", "int64", ragged=True),
    feature("g/float", "float32"),
)
VALUES: dict[str, Any] = {
    "a/int": -1,
    "b/floats": [0.5, -2.0],
    "c/text": "Käse €",
    "d/bytes": b"\x00\xff",
    "e/texts": ["", "zwölf"],
    "f/ints": [],
    "g/float": 1.25,
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
INT64 = st.integers(-(2**63), 2**63 - 1)


# Features.feature is map entries (0a) of key (0a) and value (12); a value is a Feature that holds
# a bytes_list (0a), float_list (12, packed) or int64_list (1a, packed varints).
@pytest.mark.parametrize(
    ("features", "values", "golden"),
    [
        pytest.param(
            [feature("n", "int64")],
            {"n": 300},
            "0a0d" + "0a0b" + "0a016e" + "1206" + "1a04" + "0a02ac02",
            id="int64",
        ),
        pytest.param(
            [feature("x", "float32")],
            {"x": 1.5},
            "0a0f" + "0a0d" + "0a0178" + "1208" + "1206" + "0a040000c03f",
            id="float32",
        ),
        pytest.param(
            [feature("s", "string")],
            {"s": "é"},
            "0a0d" + "0a0b" + "0a0173" + "1206" + "0a04" + "0a02c3a9",
            id="string",
        ),
        pytest.param(
            [feature("b", "bytes", ragged=True)],
            {"b": [b"", b"\xff"]},
            "0a0e" + "0a0c" + "0a0162" + "1207" + "0a05" + "0a00" + "0a01ff",
            id="ragged_bytes",
        ),
        pytest.param(
            [feature("e", "int64", ragged=True)],
            {"e": []},
            "0a09" + "0a07" + "0a0165" + "1202" + "1a00",
            id="ragged_without_values_keeps_its_kind",
        ),
        pytest.param(
            [feature("b", "bytes"), feature("a", "int64")],
            {"b": b"x", "a": 1},
            "0a18" + "0a0a0a016112051a030a0101" + "0a0a0a016212050a030a0178",
            id="keys_in_sorted_order",
        ),
    ],
)
def test_golden_bytes(features: list[Feature], values: dict[str, Any], golden: str) -> None:
    serialized = encode_example(features, values)
    assert serialized.hex() == golden
    assert decode_example(features, serialized) == values


def test_bytes_do_not_depend_on_the_order_of_features_or_values() -> None:
    forwards = encode_example(ALL_KINDS, VALUES)
    backwards = encode_example(ALL_KINDS[::-1], dict(reversed(VALUES.items())))
    assert len(forwards) > 100
    assert forwards == backwards


@given(
    number=INT64,
    floats=st.lists(FLOAT32, max_size=5),
    text=TEXT,
    data=st.binary(max_size=8),
    texts=st.lists(TEXT, max_size=5),
    numbers=st.lists(INT64, max_size=5),
    fraction=FLOAT32,
)
@settings(deadline=None, max_examples=100)
def test_decoding_inverts_encoding(
    number: int,
    floats: list[float],
    text: str,
    data: bytes,
    texts: list[str],
    numbers: list[int],
    fraction: float,
) -> None:
    given_values = (number, floats, text, data, texts, numbers, fraction)
    values = {each.name: value for each, value in zip(ALL_KINDS, given_values, strict=True)}
    assert decode_example(ALL_KINDS, encode_example(ALL_KINDS, values)) == values


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 20_000])
@pytest.mark.parametrize("text", ["", "x" * 200], ids=["short", "long"])
def test_an_extended_example_is_one_that_had_all_features(size: int, text: str) -> None:
    first, second = feature("a", "bytes"), feature("b", "string")
    values = {"a": bytes(size)}
    extended = extend_example(encode_example([first], values), [second], {"b": text})
    assert extended == encode_example([first, second], {**values, "b": text})


def test_an_extended_example_names_its_new_features_last() -> None:
    first, second = feature("b", "bytes"), feature("a", "int64")
    extended = extend_example(encode_example([first], {"b": b"x"}), [second], {"a": 1})
    assert extended.hex() == "0a18" + "0a0a0a016212050a030a0178" + "0a0a0a016112051a030a0101"
    assert decode_example([first, second], extended) == {"b": b"x", "a": 1}


def test_parsing_gives_values_as_they_are_stored() -> None:
    stored = parse_example(ALL_KINDS, encode_example(ALL_KINDS, VALUES))
    assert stored["c/text"] == ["Käse €".encode()]
    assert stored["e/texts"] == [b"", "zwölf".encode()]
    assert stored["f/ints"] == []
    assert stored["g/float"] == [1.25]
    assert stored.keys() == VALUES.keys()


def test_floats_come_back_rounded_to_float32() -> None:
    features = [feature("x", "float32")]
    values = decode_example(features, encode_example(features, {"x": 0.1}))
    assert values["x"] == np.float32(0.1)
    assert values["x"] != 0.1


def test_a_whole_number_may_stand_for_a_float() -> None:
    features = [feature("x", "float32")]
    assert decode_example(features, encode_example(features, {"x": 3})) == {"x": 3.0}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        pytest.param(
            {},
            "a record needs exactly the declared features: missing ['n', 's'], undeclared []",
            id="nothing_given",
        ),
        pytest.param(
            {"n": 1},
            "a record needs exactly the declared features: missing ['s'], undeclared []",
            id="missing",
        ),
        pytest.param(
            {"n": 1, "s": [], "z": 2},
            "a record needs exactly the declared features: missing [], undeclared ['z']",
            id="undeclared",
        ),
        pytest.param(
            {"n": "1", "s": []},
            "feature n takes int64, got '1' of type str",
            id="text_for_a_number",
        ),
        pytest.param(
            {"n": 1.0, "s": []},
            "feature n takes int64, got 1.0 of type float",
            id="float_for_a_whole_number",
        ),
        pytest.param(
            {"n": True, "s": []},
            "feature n takes int64, got True of type bool",
            id="truth_value_for_a_number",
        ),
        pytest.param(
            {"n": 1, "s": ["a", b"b"]},
            "feature s takes string, got b'b' of type bytes",
            id="bytes_among_strings",
        ),
        pytest.param(
            {"n": 1, "s": [None]},
            "feature s takes string, got None of type NoneType",
            id="none_among_strings",
        ),
    ],
)
def test_refuses_values_that_are_not_the_features(values: dict[str, Any], sentence: str) -> None:
    features = [feature("n", "int64"), feature("s", "string", ragged=True)]
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        encode_example(features, values)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_refuses_a_number_beyond_64_bits(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        encode_example([feature("n", "int64")], {"n": number})


@pytest.mark.parametrize("value", ["abc", b"abc", 3], ids=["text", "bytes", "number"])
def test_refuses_one_value_where_a_sequence_belongs(value: Any) -> None:
    with pytest.raises(ValueError, match="feature s"):
        encode_example([feature("s", "string", ragged=True)], {"s": value})


@pytest.mark.parametrize(
    ("written", "values", "read", "sentence"),
    [
        pytest.param(
            [feature("a", "int64")],
            {"a": 1},
            [feature("b", "int64")],
            "features differ from the declared ones: missing ['b'], undeclared ['a']",
            id="other_names",
        ),
        pytest.param(
            [feature("a", "int64", ragged=True)],
            {"a": [1, 2]},
            [feature("a", "int64")],
            "feature a holds 2 values, 1 expected",
            id="two_values_where_one_belongs",
        ),
        pytest.param(
            [feature("a", "int64", ragged=True)],
            {"a": []},
            [feature("a", "int64")],
            "feature a holds 0 values, 1 expected",
            id="no_value_where_one_belongs",
        ),
        pytest.param(
            [feature("a", "string")],
            {"a": "x"},
            [feature("a", "int64")],
            "feature a holds 0 values, 1 expected",
            id="another_kind",
        ),
    ],
)
def test_decoding_refuses_other_features(
    written: list[Feature], values: dict[str, Any], read: list[Feature], sentence: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        decode_example(read, encode_example(written, values))


def test_decoding_refuses_another_kind_of_a_ragged_feature() -> None:
    serialized = encode_example([feature("a", "string", ragged=True)], {"a": ["x", "y"]})
    with pytest.raises(ValueError, match="feature a"):
        decode_example([feature("a", "int64", ragged=True)], serialized)


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x7f"], ids=["bad_tag", "cut_off"])
def test_decoding_refuses_what_is_no_example(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not a tf\.train\.Example: "):
        decode_example([feature("a", "int64")], data)


def test_decoding_refuses_text_that_is_not_utf8() -> None:
    serialized = encode_example([feature("a", "bytes")], {"a": b"\xff"})
    with pytest.raises(ValueError, match="utf-8"):
        decode_example([feature("a", "string")], serialized)


def test_tensorflow_reads_and_writes_the_same_bytes() -> None:
    tf = pytest.importorskip("tensorflow")
    serialized = encode_example(ALL_KINDS, VALUES)
    message = tf.train.Example.FromString(serialized)
    stored = message.features.feature
    assert set(stored) == VALUES.keys()
    assert list(stored["a/int"].int64_list.value) == [-1]
    assert list(stored["b/floats"].float_list.value) == [0.5, -2.0]
    assert list(stored["c/text"].bytes_list.value) == ["Käse €".encode()]
    assert message.SerializeToString(deterministic=True) == serialized


LONG = bytes(range(256)) * 80  # its length takes a varint of three bytes


@pytest.mark.parametrize("value", [b"", b"x", LONG[:127], LONG[:128], LONG])
def test_bytes_are_found_without_parsing(value: bytes):
    """Before other features, behind them, and where some were added."""
    serialized = encode_example(ALL_KINDS, {**VALUES, "d/bytes": value})
    more = extend_example(serialized, [feature("a", "bytes")], {"a": b"added"})
    for example in (serialized, more):
        assert example[find_bytes(memoryview(example), "d/bytes")] == value
        assert example[find_bytes(memoryview(example), "c/text")] == "Käse €".encode()
    assert more[find_bytes(memoryview(more), "a")] == b"added"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("d", "no feature d"),
        ("e/texts", "feature e/texts holds several values, 1 expected"),
        ("g/float", "not a tf.train.Example: no field 0x0a at byte"),
    ],
)
def test_bytes_that_are_not_there_are_not_found(name: str, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        find_bytes(memoryview(encode_example(ALL_KINDS, VALUES)), name)


@pytest.mark.parametrize("tail", [b"", b"\xff" * 12])
def test_bytes_are_not_found_in_a_part_of_an_example(tail: bytes):
    """A damaged length may point anywhere, or go on without end."""
    serialized = encode_example([feature("d", "bytes")], {"d": LONG[:300]})
    start = find_bytes(memoryview(serialized), "d").start
    for end in range(start + 1):
        with pytest.raises(ValueError, match=r"not a tf\.train\.Example"):
            find_bytes(memoryview(serialized[:end] + tail), "d")
