"""torch.autograd.variable: tensors under their name of before PyTorch 0.4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.autograd import hooks


class VariableMeta(type):
    """Every tensor is a Variable."""

    def __instancecheck__(cls, other: Any) -> bool:
        from flambeau.tensor import Tensor

        return isinstance(other, Tensor)


class ImperativeEngine:
    """What programs ask PyTorch's engine for by this name."""

    @staticmethod
    def queue_callback(callback: Callable[[], None]) -> None:
        """Call a function when the backward pass that is under way has gone through. RuntimeError outside of one."""
        if hooks.current.under_way is None:
            raise RuntimeError("Final callbacks can only be installed during backward pass: call queue_callback in a hook, or in a custom function's backward")
        hooks.current.under_way.ends.append(callback)


class Variable(metaclass=VariableMeta):
    """`Variable(tensor)` is the tensor itself: variables and tensors are one since PyTorch 0.4."""

    _execution_engine = ImperativeEngine()

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Any:
        return data.requires_grad_() if requires_grad else data
