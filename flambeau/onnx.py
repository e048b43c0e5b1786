"""torch.onnx: models as ONNX files: not there."""

from __future__ import annotations

from typing import Any

from flambeau import absent as _absent

_refuse = _absent.refusal(
    NotImplementedError, "torch.onnx is not there", "save state_dict() and export the model with PyTorch; checkpoints go both ways"
)
_TABLE = """
export(model, args=(), f=None, *positional, **options) !
is_in_onnx_export() = False
is_onnxrt_backend_supported() = False
dynamo_export(model, *args, **options) !
register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version) ok
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "exporter")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'torch.onnx' has no attribute {name!r}: torch.onnx is not there")
