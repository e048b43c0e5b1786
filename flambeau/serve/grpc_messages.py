"""The messages of the Open Inference Protocol's gRPC form (grpc_predict_v2), made at run time from a description in Python: there is no generated code.

Names, numbers and types of the fields are those of the protocol's grpc_predict_v2.proto (github.com/kserve/open-inference-protocol).
"""

from __future__ import annotations

from typing import Any, Final

from flambeau.serve.packages import package

PACKAGE: Final = "inference"
SERVICE: Final = "inference.GRPCInferenceService"
METHODS: Final = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")
# A field: name number type, "*" before the type of a repeated one, "=" before the value type of a map by string, "?" before a member of a oneof.
_MESSAGES: Final = """
ServerLiveRequest
ServerLiveResponse: live 1 bool
ServerReadyRequest
ServerReadyResponse: ready 1 bool
ModelReadyRequest: name 1 string, version 2 string
ModelReadyResponse: ready 1 bool
ServerMetadataRequest
ServerMetadataResponse: name 1 string, version 2 string, extensions 3 *string
ModelMetadataRequest: name 1 string, version 2 string
ModelMetadataResponse: name 1 string, versions 2 *string, platform 3 string, inputs 4 *.TensorMetadata, outputs 5 *.TensorMetadata
ModelMetadataResponse.TensorMetadata: name 1 string, datatype 2 string, shape 3 *int64
InferParameter: bool_param 1 ?bool, int64_param 2 ?int64, string_param 3 ?string, double_param 4 ?double, uint64_param 5 ?uint64
InferTensorContents: bool_contents 1 *bool, int_contents 2 *int32, int64_contents 3 *int64, uint_contents 4 *uint32, uint64_contents 5 *uint64, \
fp32_contents 6 *float, fp64_contents 7 *double, bytes_contents 8 *bytes
ModelInferRequest: model_name 1 string, model_version 2 string, id 3 string, parameters 4 =InferParameter, inputs 5 *.InferInputTensor, \
outputs 6 *.InferRequestedOutputTensor, raw_input_contents 7 *bytes
ModelInferRequest.InferInputTensor: name 1 string, datatype 2 string, shape 3 *int64, parameters 4 =InferParameter, contents 5 InferTensorContents
ModelInferRequest.InferRequestedOutputTensor: name 1 string, parameters 2 =InferParameter
ModelInferResponse: model_name 1 string, model_version 2 string, id 3 string, parameters 4 =InferParameter, outputs 5 *.InferOutputTensor, \
raw_output_contents 6 *bytes
ModelInferResponse.InferOutputTensor: name 1 string, datatype 2 string, shape 3 *int64, parameters 4 =InferParameter, contents 5 InferTensorContents
"""
_SCALARS: Final = ("double", "float", "int64", "uint64", "int32", "bool", "string", "bytes", "uint32")


def _describe(message: Any, path: str, fields: str, proto: Any) -> None:
    kinds = proto.FieldDescriptorProto
    for text in fields.split(","):
        if not text.strip():
            continue
        name, number, kind = text.split()
        mark, kind = (kind[0], kind[1:]) if kind[0] in "*=?" else ("", kind)
        field = message.field.add(name=name, number=int(number), label=kinds.LABEL_REPEATED if mark in ("*", "=") else kinds.LABEL_OPTIONAL)
        if mark == "=":  # a map is a repeated message of its own
            entry = message.nested_type.add(name=f"{name.title()}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
            entry.field.add(name="value", number=2, type=kinds.TYPE_MESSAGE, type_name=f".{PACKAGE}.{kind}", label=kinds.LABEL_OPTIONAL)
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{path}.{entry.name}"
        elif kind in _SCALARS:
            field.type = getattr(kinds, f"TYPE_{kind.upper()}")
        else:
            inner = f"{path}{kind}" if kind[0] == "." else kind
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{inner}"
        if mark == "?":
            if not message.oneof_decl:
                message.oneof_decl.add(name="parameter_choice")
            field.oneof_index = 0


def messages() -> dict[str, Any]:
    """The classes of the messages, by name. ImportError that names the extra if protobuf is not installed."""
    what = "flambeau serve --grpc-port"
    proto: Any = package("google.protobuf.descriptor_pb2", what)
    pool: Any = package("google.protobuf.descriptor_pool", what).DescriptorPool()  # of our own: a client's generated code has the same names
    factory: Any = package("google.protobuf.message_factory", what)
    file = proto.FileDescriptorProto(name="grpc_predict_v2.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for line in _MESSAGES.strip().splitlines():
        path, _, fields = line.partition(":")
        outer, _, name = path.rpartition(".")
        made[path] = made[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        _describe(made[path], path, fields, proto)
    pool.Add(file)
    return {path: factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{path}")) for path in made}
