"""The `onnx` package, which reads and writes the protobuf: an extra of flambeau, asked for where it is needed."""

from __future__ import annotations

import importlib
from typing import Any


def onnx(what: str) -> Any:
    """The package; ImportError that names the extra where it is not installed. `what`: the function that needs it."""
    return _module("onnx", what)


def part(name: str, what: str) -> Any:
    """A module of the package, as "numpy_helper"."""
    onnx(what)
    return importlib.import_module(f"onnx.{name}")


def ml_dtypes(what: str) -> Any:
    """NumPy's dtypes of bfloat16, of 8 bits and below, which the package installs."""
    return _module("ml_dtypes", what)


def _module(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(f"{what} needs the package {name}, which is not installed: pip install 'flambeau[onnx]'", name=name) from None
