"""torch.onnx: models as ONNX files, out (`export`) and in (`load`, `run`). The package `onnx` (flambeau[onnx]) reads and writes the protobuf.

exporting/ (programs of torch.export become ONNX models), importing/ (ONNX models become modules), backend (flambeau as a backend of ONNX's test suite).
"""

from __future__ import annotations

import importlib
from enum import IntEnum
from typing import Any

from flambeau import absent as _absent
from flambeau.onnx.errors import OnnxExporterError as OnnxExporterError
from flambeau.onnx.exporting.exporter import export as export
from flambeau.onnx.exporting.program import ONNXProgram as ONNXProgram
from flambeau.onnx.importing.module import Model as Model
from flambeau.onnx.importing.module import load as load
from flambeau.onnx.importing.module import run as run

_refuse = _absent.refusal(NotImplementedError, "this part of torch.onnx is not there", "torch.onnx.export writes models, torch.onnx.load reads them")
_TABLE = """
is_in_onnx_export() = False
is_onnxrt_backend_supported() = False
dynamo_export(model, *args, **options) !
register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version) ok
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "exporter")
_CLASSES = _absent.classes(globals(), "ExportOptions JitScalarType OnnxRegistry".split(), _refuse, "exporter")


class TrainingMode(IntEnum):
    """In which mode a model is exported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(IntEnum):
    """What happens to operators without a counterpart in ONNX."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


_IntEnum: Any = IntEnum
TensorProtoDataType = _IntEnum(  # ONNX's numbers of dtypes
    "TensorProtoDataType",
    "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128 BFLOAT16 FLOAT8E4M3FN "
    "FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ".split(),
    start=0, module=__name__,
)  # fmt: skip
_MODULES = frozenset(
    "operators symbolic_helper symbolic_opset9 symbolic_opset11 symbolic_opset12 symbolic_opset13 symbolic_opset14 utils errors backend".split()
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"flambeau.onnx.{name}")
    from flambeau.names import otherwise

    return otherwise("torch.onnx", name, globals())
