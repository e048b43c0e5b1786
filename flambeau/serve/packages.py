"""The packages that the server needs beside flambeau's own: extras, asked for where they are used."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Final

_EXTRAS: Final = {
    "httptools": "serve",
    "uvloop": "serve",
    "orjson": "serve",
    "prometheus_client": "serve",
    "tokenizers": "tokenizers",
    "grpc": "grpc",
    "google.protobuf": "grpc",
}


def package(name: str, what: str) -> ModuleType:
    """A package, or a module of it; ImportError that names the extra where it is not installed. `what`: the thing that needs it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        extra = next((e for n, e in _EXTRAS.items() if name == n or name.startswith(f"{n}.")), "serve")
        raise ImportError(f"{what} needs the package {error.name}, which is not installed: pip install 'flambeau[{extra}]'", name=error.name) from None
