"""Named tuples of results, as torch.return_types has them."""

from __future__ import annotations

from collections import namedtuple
from functools import cache
from typing import Any


@cache
def return_type(name: str, *fields: str) -> Any:
    """The class torch.return_types.name with these fields; its repr is PyTorch's."""
    made = namedtuple(name, fields)  # type: ignore[misc]

    def show(self: Any) -> str:
        return f"torch.return_types.{name}(\n" + ",\n".join([f"{f}={v!r}" for f, v in zip(fields, self, strict=True)]) + ")"

    made.__repr__ = show  # type: ignore[method-assign]
    made.__module__ = "torch.return_types"
    return made
