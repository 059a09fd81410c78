"""`tf.train.Example` protocol buffers without TensorFlow.

The three messages of tensorflow/core/example/{example,feature}.proto are declared here in a
descriptor pool of their own, so that TensorFlow can be imported beside this module.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2

from schemas.protobuf import declare
from schemas.receipt import Dtype, Feature

Value = bytes | str | int | float
_Field = descriptor_pb2.FieldDescriptorProto
_FIELDS: dict[Dtype, str] = {
    "bytes": "bytes_list",
    "string": "bytes_list",
    "int64": "int64_list",
    "float32": "float_list",
}
_FEATURES_TAG = b"\x0a"  # Example's field 1, length-delimited
PADDING_TAG = 0x7A  # field 15 of the same kind, which Example has not: see `schemas.raw_pixels`
_FIRST, _SECOND = 0x0A, 0x12  # tags of the length-delimited fields 1 and 2 of any message
_PYTHON_TYPES: dict[Dtype, set[type]] = {
    "bytes": {bytes},
    "string": {str},
    "int64": {int},
    "float32": {float, int},
}


def encode_example(
    features: Sequence[Feature], values: Mapping[str, Value | Sequence[Value]]
) -> bytes:
    """Serializes one record, wire-compatible with `tf.train.Example`, map keys in sorted order.

    Args:
      features: the record's features; every one must have a value.
      values: one value for a plain feature, a sequence of values for a ragged one.

    Raises:
      ValueError: a value is missing, has no feature, or has another type than its feature.
    """
    names = {feature.name for feature in features}
    if names != values.keys():
        raise ValueError(
            f"a record needs exactly the declared features: missing {sorted(names - values.keys())}"
            f", undeclared {sorted(values.keys() - names)}"
        )
    message = _example_class()()
    for feature in features:
        value: Any = values[feature.name]
        if feature.ragged and (isinstance(value, bytes | str) or not isinstance(value, Sequence)):
            raise ValueError(f"feature {feature.name} takes a sequence of values, got {value!r}")
        items = value if feature.ragged else [value]
        # By type, not by `isinstance`: True would be an int64 of 1.
        if not set(map(type, items)) <= _PYTHON_TYPES[feature.dtype]:
            wrong = next(item for item in items if type(item) not in _PYTHON_TYPES[feature.dtype])
            raise ValueError(
                f"feature {feature.name} takes {feature.dtype}, "
                f"got {wrong!r} of type {type(wrong).__name__}"
            )
        if feature.dtype == "string":
            items = [item.encode() for item in items]
        getattr(message.features.feature[feature.name], _FIELDS[feature.dtype]).value.extend(items)
    # Protobuf writes the entries of a map in any order unless it is told to sort them.
    return message.SerializeToString(deterministic=True)


def extend_example(
    serialized: bytes, features: Sequence[Feature], values: Mapping[str, Value | Sequence[Value]]
) -> bytes:
    """Adds features behind the others of an Example made by `encode_example`, without parsing it.

    An Example has one field, the map of its features, whose entries lie one after the other. So
    the entries of both Examples are joined, behind a header with their common length.

    Raises:
      ValueError: as `encode_example` does.
    """
    parts = [memoryview(part) for part in (serialized, encode_example(features, values))]
    entries = b"".join(part[_header_bytes(part) :] for part in parts)
    return _FEATURES_TAG + _varint(len(entries)) + entries


def parse_example(features: Sequence[Feature], serialized: bytes) -> dict[str, Sequence[Any]]:
    """Reads the values of every feature as stored: strings as UTF-8, a plain one in a list.

    Raises:
      ValueError: the bytes are not an Example, or its features differ from those declared.
    """
    message = _example_class()()
    try:
        message.ParseFromString(serialized)
    except Exception as error:  # protobuf's DecodeError differs between its implementations
        raise ValueError(f"not a tf.train.Example: {error}") from error
    stored = message.features.feature
    names = {feature.name for feature in features}
    if names != set(stored):
        raise ValueError(
            f"features differ from the declared ones: missing {sorted(names - set(stored))}, "
            f"undeclared {sorted(set(stored) - names)}"
        )
    values: dict[str, Sequence[Any]] = {}
    for feature in features:
        holder = stored[feature.name]
        kind = holder.WhichOneof("kind")
        # A list without values may have no kind.
        if feature.ragged and kind not in (None, _FIELDS[feature.dtype]):
            raise ValueError(f"feature {feature.name} is stored as {kind}, not {feature.dtype}")
        items = list(getattr(holder, _FIELDS[feature.dtype]).value)
        if not feature.ragged and len(items) != 1:
            raise ValueError(f"feature {feature.name} holds {len(items)} values, 1 expected")
        values[feature.name] = items
    return values


def decode_example(
    features: Sequence[Feature], serialized: bytes
) -> dict[str, Value | list[Value]]:
    """Inverse of `encode_example`; float32 values come back rounded to that precision.

    Raises:
      ValueError: as `parse_example` does, or a string is not UTF-8.
    """
    stored = parse_example(features, serialized)
    values: dict[str, Value | list[Value]] = {}
    for feature in features:
        items = list(stored[feature.name])
        if feature.dtype == "string":
            items = [item.decode() for item in items]
        values[feature.name] = items if feature.ragged else items[0]
    return values


def find_bytes(serialized: memoryview, name: str) -> slice:
    """Finds where the only value of a feature of bytes or a string lies in an Example.

    Nothing is parsed but the headers of what lies before it. They nest: a map entry of the key
    "a" and the value "bc" is 0A 0B, then 0A 01 "a" and 12 06, then 0A 04 of the list of bytes,
    then 0A 02 "bc". So the value lies at bytes 11 to 13.

    Raises:
      ValueError: the bytes are not an Example made by `encode_example`, or it has no such value.
    """
    padding = slice(0, 0)
    if serialized[:1] == bytes([PADDING_TAG]):
        padding = _contents(serialized, slice(0, len(serialized)), PADDING_TAG)
    features = _contents(serialized, slice(padding.stop, len(serialized)), _FIRST)
    key = name.encode()
    start = features.start
    while start < features.stop:
        entry = _contents(serialized, slice(start, features.stop), _FIRST)
        stored_key = _contents(serialized, entry, _FIRST)
        if serialized[stored_key] == key:
            feature = _contents(serialized, slice(stored_key.stop, entry.stop), _SECOND)
            values = _contents(serialized, feature, _FIRST)
            value = _contents(serialized, values, _FIRST)
            if value.stop != values.stop:
                raise ValueError(f"feature {name} holds several values, 1 expected")
            return value
        start = entry.stop
    raise ValueError(f"no feature {name}")


def _contents(serialized: memoryview, within: slice, tag: int) -> slice:
    """Returns where the contents of the field that begins a range lie; it must have this tag."""
    start, length, shift = within.start + 1, 0, 0
    while (group := serialized[start] if start < within.stop else 0) & 0x80:
        length |= (group & 0x7F) << shift
        start, shift = start + 1, shift + 7
    end = start + 1 + (length | group << shift)
    if start >= within.stop or serialized[within.start] != tag or end > within.stop:
        raise ValueError(f"not a tf.train.Example: no field {tag:#04x} at byte {within.start}")
    return slice(start + 1, end)


def _header_bytes(serialized: memoryview) -> int:
    """Returns the length of the header of an Example's only field: a tag and a varint."""
    # All bytes of a varint but its last have the highest bit set, see `_varint`.
    end = 1
    while end < len(serialized) and serialized[end] & 0x80:
        end += 1
    return end + 1


def _varint(value: int) -> bytes:
    """Encodes a number in groups of 7 bits, lowest first; all but the last have bit 8 set.

    300 is 2 · 128 + 44: the bytes 44 + 128 and 2, AC 02.
    """
    groups = []
    while value > 0x7F:
        groups.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes([*groups, value])


@cache
def _example_class() -> Any:
    """Declares the messages, and returns the class of tensorflow.Example.

    message Example { Features features = 1; }
    message Features { map<string, Feature> feature = 1; }
    message Feature {
      oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; }
    }
    message BytesList { repeated bytes value = 1; }  // and the other lists alike
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="tillroll/example.proto", package="tensorflow", syntax="proto3"
    )
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, type_) in enumerate(
        (("Bytes", _Field.TYPE_BYTES), ("Float", _Field.TYPE_FLOAT), ("Int64", _Field.TYPE_INT64)),
        start=1,
    ):
        values = file.message_type.add(name=f"{name}List")
        _add_field(values, "value", type_, repeated=True)
        _add_field(feature, f"{name.lower()}_list", f"{name}List", number=number, oneof_index=0)
    features = file.message_type.add(name="Features")
    # A map is a repeated message of keys and values: what protoc makes of `map<…>`.
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    _add_field(entry, "key", _Field.TYPE_STRING)
    _add_field(entry, "value", "Feature", number=2)
    _add_field(features, "feature", "Features.FeatureEntry", repeated=True)
    _add_field(file.message_type.add(name="Example"), "features", "Features")
    return declare(file)["tensorflow.Example"]


def _add_field(
    message: Any,
    name: str,
    type_: int | str,
    *,
    number: int = 1,
    repeated: bool = False,
    **rest: Any,
) -> None:
    """Adds a field of a type of `_Field`, or of the message of a name."""
    if isinstance(type_, str):
        rest["type_name"], type_ = f".tensorflow.{type_}", _Field.TYPE_MESSAGE
    label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    message.field.add(name=name, number=number, label=label, type=type_, **rest)
