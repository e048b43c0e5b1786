"""torch.onnx.symbolic_helper: what functions that write operators in ONNX share. There is no exporter that would call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def opset(number: int) -> Callable[[str], Any]:
    """A module's `__getattr__`: for each name a function that refuses."""

    def find(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module 'torch.onnx.symbolic_opset{number}' has no attribute {name!r}")

        def refusing(*args: Any, **kwargs: Any) -> Any:
            _refuse(f"symbolic_opset{number}.{name}")

        refusing.__name__ = refusing.__qualname__ = name
        return refusing

    return find
