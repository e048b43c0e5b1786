"""Parameter and Buffer: tensors that a Module registers when they are assigned to one of its attributes."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.tensor import Tensor


class Parameter(Tensor):
    """A tensor that is a module's parameter: a leaf that requires a gradient unless said otherwise.

    It shares the memory of `data`. Without data it is an empty tensor of shape (0,).
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = torch.empty(0)
        elif not isinstance(data, Tensor):
            raise TypeError(f"Parameter: expected a Tensor as data, got {type(data).__name__}")
        return Tensor._make_subclass(cls, data.detach(), requires_grad)  # type: ignore[no-any-return]

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        copied = type(self)(self.detach().clone(), self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __repr__(self) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Parameter, (self.detach(), self.requires_grad)


class Buffer(Tensor):
    """A tensor that becomes a buffer when it is assigned to a module's attribute; saved with it if `persistent`."""

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = torch.empty(0)
        t = Tensor._make_subclass(cls, data.detach(), data.requires_grad)
        t.persistent = persistent
        return t  # type: ignore[no-any-return]

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        pass
