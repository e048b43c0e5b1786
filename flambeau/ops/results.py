"""Named tuples of results, as torch.return_types has them."""

from __future__ import annotations

from collections import namedtuple
from functools import cache
from typing import Any


@cache
def return_type(name: str, *fields: str) -> Any:
    """The class torch.return_types.name with these fields; its repr is PyTorch's, and it is made of values, or of one sequence of all of them."""
    made = namedtuple(name, fields)  # type: ignore[misc]
    of_values = made.__new__

    def new(cls: Any, *values: Any, **named: Any) -> Any:
        if len(values) == 1 and not named and isinstance(values[0], (tuple, list)):
            values = tuple(values[0])
        return of_values(cls, *values, **named)

    made.__new__ = new  # type: ignore[method-assign,assignment]
    made.n_fields = made.n_sequence_fields = len(fields)  # type: ignore[attr-defined]
    made.n_unnamed_fields = 0  # type: ignore[attr-defined]

    def show(self: Any) -> str:
        return f"torch.return_types.{name}(\n" + ",\n".join([f"{f}={v!r}" for f, v in zip(fields, self, strict=True)]) + ")"

    made.__repr__ = show  # type: ignore[method-assign]
    made.__module__ = "torch.return_types"
    return made
