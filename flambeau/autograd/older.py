"""Names of torch.autograd that are there for older programs, and settings that change nothing here."""

from __future__ import annotations

from typing import Any

from flambeau.autograd.function import Function

_multithreading = [True]


def is_multithreading_enabled() -> bool:
    """What set_multithreading_enabled was told last."""
    return _multithreading[0]


class set_multithreading_enabled:
    """Accepted, for now on or for a block: a backward pass is a plan, whose kernels use the team of threads."""

    def __init__(self, mode: bool) -> None:
        self.mode, self.before = mode, _multithreading[0]
        _multithreading[0] = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        _multithreading[0] = self.before


class enforce_grad_layout_policy:
    """Accepted, for now on or for a block: a leaf's gradient always lies in memory as the leaf does."""

    def __init__(self, enable: bool = True) -> None:
        self.mode = enable

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


class NestedIOFunction(Function):
    """PyTorch's base of functions on nested containers; derive from Function and give tensors one by one."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        raise NotImplementedError("torch.autograd.NestedIOFunction is not there; derive from torch.autograd.Function, whose arguments are tensors one by one")
