"""torch.autograd.variable: tensors under their name of before PyTorch 0.4."""

from __future__ import annotations

from typing import Any


class VariableMeta(type):
    """Every tensor is a Variable."""

    def __instancecheck__(cls, other: Any) -> bool:
        from flambeau.tensor import Tensor

        return isinstance(other, Tensor)


class Variable(metaclass=VariableMeta):
    """`Variable(tensor)` is the tensor itself: variables and tensors are one since PyTorch 0.4."""

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Any:
        return data.requires_grad_() if requires_grad else data
