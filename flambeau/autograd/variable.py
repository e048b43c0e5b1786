"""torch.autograd.variable: tensors under their name of before PyTorch 0.4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.autograd import hooks
from flambeau.foreign import refuse
from flambeau.trace.once import warn_here


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
    """`Variable(tensor, requires_grad=False)`: a tensor over the same memory that has no history, as it was made before PyTorch 0.4."""

    _execution_engine = ImperativeEngine()

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        import flambeau as torch

        if data is None:
            data = torch.empty(0)
        if not isinstance(data, torch.Tensor):
            refuse((data,), "Variable()")
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        if volatile:
            warn_here("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.")
        return data.detach().requires_grad_(bool(requires_grad))
