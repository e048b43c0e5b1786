"""Settings that a script makes and reads again, and the context manager that makes them for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class Settings:
    """Attributes with defaults. AttributeError for one that PyTorch has not: a misspelt setting shall not pass."""

    _name: str

    def __init__(self, name: str, **defaults: Any) -> None:
        self.__dict__["_name"] = name
        self.__dict__.update(defaults)

    def __setattr__(self, key: str, value: Any) -> None:
        if key not in self.__dict__:
            raise AttributeError(f"{self._name} has no setting {key!r}; it has {', '.join(k for k in self.__dict__ if k != '_name')}")
        self.__dict__[key] = value

    def __repr__(self) -> str:
        return f"<{self._name}: {', '.join(f'{k}={v!r}' for k, v in self.__dict__.items() if k != '_name')}>"


@contextmanager
def flags(module: ModuleType, values: dict[str, Any]) -> Iterator[None]:
    """Set attributes of a module inside a block."""
    before = {name: getattr(module, name) for name in values}
    try:
        for name, value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
