"""Kernels of the library that are written in the tile language, one module a family. The compiler asks for their programs (compiler/kernels/tiled.py)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from flambeau.compiler.tile.ir import Program, Type
from flambeau.tile.functions import JITFunction, expanded
from flambeau.tile.values import tensor


def program_of(name: str, arguments: Mapping[str, Any]) -> Program:
    """The program of a function, "module.function"."""
    module, _, of = name.partition(".")
    function = getattr(import_module(f"{__name__}.{module}"), of)
    assert isinstance(function, JITFunction)
    params: list[tuple[str, Type]] = []
    for key, argument in arguments.items():
        _declare(key, argument, params)
    return expanded(function, params, lambda left: {key: _bound(argument, left) for key, argument in arguments.items()})[0]


def _declare(name: str, argument: Any, params: list[tuple[str, Type]]) -> None:
    if isinstance(argument, Type):
        params.append((name, argument))
    elif isinstance(argument, tuple):
        for i, part in enumerate(argument):
            _declare(f"{name}.{i}", part, params)


def _bound(argument: Any, left: list[tensor]) -> Any:
    """An argument with the parameters that it stands for."""
    if isinstance(argument, tuple):
        return tuple(_bound(part, left) for part in argument)
    return left.pop(0) if isinstance(argument, Type) else argument
