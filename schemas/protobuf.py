"""Messages of protocol buffers that are declared in Python, in descriptor pools of their own."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_CLASSES: list[dict[str, Any]] = []


def declare(file: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    """Declares the messages of a file, and returns their classes by their full names.

    The classes are kept for the life of the process. Protobuf itself remembers the class of a field
    only as long as somebody else does. Python then destroys it together with other garbage and, as
    it pauses in the middle where an object of TensorFlow is destroyed, another thread could get a
    message of a class of which half is left: that ends the process by SIGSEGV.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = message_factory.GetMessageClassesForFiles([file.name], pool)
    _CLASSES.append(classes)
    return classes
