"""torch._tensor_str: how tensors are printed, by PyTorch's inner names."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from flambeau.printing import OPTIONS as PRINT_OPTS
from flambeau.printing import _ComplexFormat, _Format, contents, join, set_printoptions, tensor_repr

__all__ = ["PRINT_OPTS", "get_printoptions", "printoptions", "set_printoptions"]


def get_printoptions() -> dict[str, Any]:
    """The options as they are set."""
    return dataclasses.asdict(PRINT_OPTS)


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """set_printoptions for a `with` block."""
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        set_printoptions(**before)


def _tensor_str(self: Any, indent: int) -> str:
    """The elements, lines after the first moved right by so many columns."""
    return contents(self.detach(), indent)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """The elements, what is said behind them, and the bracket that ends the text."""
    return join(tensor_str, suffixes, indent, force_newline)


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The whole text."""
    return tensor_repr(self)


def _str_intern(inp: Any, *, tensor_contents: str | None = None) -> str:
    """The whole text."""
    return tensor_repr(inp)


class _Formatter:
    """How the numbers of a tensor are written, all of one width."""

    def __init__(self, tensor: Any) -> None:
        kind = _ComplexFormat if tensor.dtype.is_complex else _Format
        self._format = kind(tensor.detach().reshape(-1).tolist(), tensor.dtype)

    def width(self) -> int:
        """The columns that a number takes."""
        return self._format.width

    def format(self, value: Any) -> str:
        """A number as one of the tensor's."""
        return self._format(value)
