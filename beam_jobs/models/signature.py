"""The signatures of a SavedModel, read without TensorFlow: the launcher of a job may lack it.

`saved_model.pb` is a protobuf message of tensorflow/core/protobuf/saved_model.proto and
meta_graph.proto. Declared here are the fields that say what a model takes and gives; all others,
such as the graph, are skipped.
"""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from schemas.predictions import ModelOutput
from schemas.protobuf import declare

SERVE = "serve"  # the tag of the graph that TensorFlow Serving loads
_STRING = 7
# Numbers of the enum DataType, tensorflow/core/framework/types.proto.
_DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    _STRING: "string",
    9: "int64",
    10: "bool",
    14: "float32",  # bfloat16, which NumPy lacks: widened, which is exact
    17: "uint16",
    19: "float32",  # half, widened for those who read the predictions
    22: "uint32",
    23: "uint64",
}
_Field = descriptor_pb2.FieldDescriptorProto


def read_signature(data: bytes, name: str, *, path: str) -> tuple[str, tuple[ModelOutput, ...]]:
    """Reads what a signature takes and gives.

    Args:
      data: contents of saved_model.pb.
      name: the signature.
      path: where the model lies, for errors.

    Returns:
      The name of its input, and its outputs, sorted by name.

    Raises:
      ValueError: there is no such signature, or it takes or gives something else than files and
        values of each.
    """
    signatures = _serving_signatures(data, path)
    if name not in signatures:
        known = ", ".join(sorted(signatures)) or "none"
        raise ValueError(f"{path} has no signature {name!r}: choose one of its own, {known}")
    signature = signatures[name]
    inputs = {key: _described(signature.inputs[key]) for key in sorted(signature.inputs)}
    if list(inputs.values()) != ["string [n]"]:
        taken = ", ".join(f"{key} {described}" for key, described in inputs.items())
        raise ValueError(
            f"signature {name!r} of {path} takes {taken or 'nothing'}, must take image files, one "
            "string [n]: python -m pipeline.export writes such a model"
        )
    outputs = tuple(
        _output(key, signature.outputs[key], name, path) for key in sorted(signature.outputs)
    )
    if not outputs:
        raise ValueError(f"signature {name!r} of {path} gives nothing: export the model anew")
    return next(iter(inputs)), outputs


def _serving_signatures(data: bytes, path: str) -> dict[str, Any]:
    try:
        model = saved_model_class().FromString(data)
    except DecodeError as error:
        raise ValueError(f"{path}/saved_model.pb is damaged: export the model anew") from error
    for graph in model.meta_graphs:
        if list(graph.meta_info_def.tags) == [SERVE]:
            # TensorFlow's own, such as that of the initialization, begin with two underscores.
            found = graph.signature_def.items()
            return {key: one for key, one in found if not key.startswith("__")}
    raise ValueError(
        f"{path} has no graph for serving (tag {SERVE!r} alone): save it with tf.saved_model.save"
    )


def _output(key: str, tensor: Any, name: str, path: str) -> ModelOutput:
    sides = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.dtype not in _DTYPES or tensor.tensor_shape.unknown_rank or sides[:1] != [-1]:
        raise ValueError(
            f"output {key!r} of signature {name!r} of {path} is {_described(tensor)}, must be "
            "numbers, truth values or strings with the images as the first, open dimension"
        )
    return ModelOutput(name=key, dtype=_DTYPES[tensor.dtype], shape=tuple(sides[1:]))


def _described(tensor: Any) -> str:
    """Type and shape for people: float32 [n, 64, ?]."""
    dtype = _DTYPES.get(tensor.dtype, f"of type {tensor.dtype}")
    if tensor.tensor_shape.unknown_rank:
        return f"{dtype} of unknown rank"
    sides = [dim.size for dim in tensor.tensor_shape.dim]
    texts = ["?" if side < 0 else str(side) for side in sides]
    return f"{dtype} [{', '.join(['n', *texts[1:]] if sides[:1] == [-1] else texts)}]"


@cache
def saved_model_class() -> Any:
    """Declares the messages, and returns the class of SavedModel.

    message SavedModel { repeated MetaGraphDef meta_graphs = 2; }
    message MetaGraphDef {
      MetaInfoDef meta_info_def = 1; map<string, SignatureDef> signature_def = 5;
    }
    message MetaInfoDef { repeated string tags = 4; }
    message SignatureDef {
      map<string, TensorInfo> inputs = 1; map<string, TensorInfo> outputs = 2;
    }
    message TensorInfo { int32 dtype = 2; TensorShape tensor_shape = 3; }  // dtype: an enum
    message TensorShape { repeated Dim dim = 2; bool unknown_rank = 3; }
    message Dim { int64 size = 1; }
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="tillroll/saved_model.proto", package="tillroll", syntax="proto3"
    )
    _add(file, "Dim", ("size", 1, _Field.TYPE_INT64))
    _add(file, "TensorShape", ("*dim", 2, "Dim"), ("unknown_rank", 3, _Field.TYPE_BOOL))
    _add(file, "TensorInfo", ("dtype", 2, _Field.TYPE_INT32), ("tensor_shape", 3, "TensorShape"))
    signature = _add(file, "SignatureDef")
    _add_map(signature, "inputs", 1, "TensorInfo")
    _add_map(signature, "outputs", 2, "TensorInfo")
    _add(file, "MetaInfoDef", ("*tags", 4, _Field.TYPE_STRING))
    graph = _add(file, "MetaGraphDef", ("meta_info_def", 1, "MetaInfoDef"))
    _add_map(graph, "signature_def", 5, "SignatureDef")
    _add(file, "SavedModel", ("*meta_graphs", 2, "MetaGraphDef"))
    return declare(file)["tillroll.SavedModel"]


def _add(file: Any, name: str, *fields: tuple[str, int, int | str]) -> Any:
    """Adds a message; a field is (name, with * if repeated, number, type or name of a message)."""
    message = file.message_type.add(name=name)
    for field in fields:
        _add_field(message, *field)
    return message


def _add_field(message: Any, name: str, number: int, type_: int | str) -> None:
    rest: dict[str, Any] = {"type": type_}
    if isinstance(type_, str):
        rest = {"type": _Field.TYPE_MESSAGE, "type_name": f".tillroll.{type_}"}
    label = _Field.LABEL_REPEATED if name.startswith("*") else _Field.LABEL_OPTIONAL
    message.field.add(name=name.lstrip("*"), number=number, label=label, **rest)


def _add_map(message: Any, name: str, number: int, value: str) -> None:
    """Adds a map of strings: to protobuf, a repeated message of keys and values."""
    # protoc names the message like this, and the runtime looks for it.
    entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
    entry = message.nested_type.add(name=entry_name)
    entry.options.map_entry = True
    _add_field(entry, "key", 1, _Field.TYPE_STRING)
    _add_field(entry, "value", 2, value)
    _add_field(message, f"*{name}", number, f"{message.name}.{entry_name}")
