"""torch.onnx.symbolic_helper: what functions that write operators in ONNX share. There is no exporter that would call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import absent
from flambeau.onnx import _refuse

# PyTorch's names of dtypes -> ONNX's.
cast_pytorch_to_onnx = {
    "Byte": "UINT8", "Char": "INT8", "Double": "DOUBLE", "Float": "FLOAT", "Half": "FLOAT16", "Int": "INT32", "Long": "INT64", "Short": "INT16",
    "Bool": "BOOL", "ComplexFloat": "COMPLEX64", "ComplexDouble": "COMPLEX128", "BFloat16": "BFLOAT16", "Undefined": "UNDEFINED",
}  # fmt: skip


def parse_args(*arg_descriptors: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that says which types a symbolic function's arguments have; it returns the function."""
    return lambda fn: fn


def quantized_args(*arg_q_descriptors: bool, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that says which arguments may be quantized; it returns the function."""
    return lambda fn: fn


def opset(namespace: dict[str, Any], number: int, names: str) -> None:
    """Put functions that refuse into the globals of the module of an operator set."""
    absent.define(namespace, "\n".join(f"{name}(*args, **options) !" for name in names.split()), _refuse, "exporter")
