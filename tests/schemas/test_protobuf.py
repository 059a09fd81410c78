"""Messages that are declared in Python."""

import gc
import weakref
from typing import Any

from google.protobuf import descriptor_pb2

from schemas.protobuf import declare

_Field = descriptor_pb2.FieldDescriptorProto


def nested_class(outer: Any) -> "weakref.ref[Any]":
    """Refers to the class of the field of a new message, and keeps nothing of the message."""
    return weakref.ref(type(outer().inner))


def test_the_classes_of_fields_are_kept():
    """Otherwise one thread's garbage is what another thread works with."""
    file = descriptor_pb2.FileDescriptorProto(name="test.proto", package="test", syntax="proto3")
    file.message_type.add(name="Inner")
    file.message_type.add(name="Outer").field.add(
        name="inner",
        number=1,
        label=_Field.LABEL_OPTIONAL,
        type=_Field.TYPE_MESSAGE,
        type_name=".test.Inner",
    )
    inner = nested_class(declare(file)["test.Outer"])
    gc.collect()
    assert inner() is not None
