"""torch.utils._python_dispatch: modes and subclasses that see calls below autograd, under aten names (ops/below.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flambeau.ops import below, dispatch, instrument
from flambeau.tensor import Tensor


class TorchDispatchMode:
    """A block in which `__torch_dispatch__(func, types, args, kwargs)` of this object is asked by every operator of aten that public functions are.

    Functions are given their stubs when the first block is entered and lose them after the last: outside, calls cost nothing more. Backward passes and
    optimizers' steps are not seen: they are recorded as a whole.
    """

    def __init__(self, _dispatch_key: Any = None) -> None:
        pass

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        modes, stack = list(dispatch.state.modes), list(below.modes.stack)
        if "_stubs" not in self.__dict__:
            self._stubs = instrument.everything()
        self._stubs.__enter__()
        try:
            below.modes.stack.append(self)
            dispatch.state.modes.append(below._SEEN)
            return self
        except BaseException:  # an interrupt: no `__exit__` will come
            dispatch.state.modes[:], below.modes.stack[:] = modes, stack
            self._stubs.__exit__()
            raise

    def __exit__(self, *_: Any) -> None:
        try:
            dispatch.state.modes.pop()
        finally:
            below.modes.stack.pop()
            self._stubs.__exit__()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """An object of the mode: the older name of its constructor."""
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """False: none is a part of a compiler."""
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> Any:
    """The innermost mode, or None."""
    return below.modes.stack[-1] if below.modes.stack else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """All modes, innermost last."""
    return list(below.modes.stack)


@contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """A block in which no mode is asked."""
    before, below.modes.stack = below.modes.stack, []
    functions, dispatch.state.modes = dispatch.state.modes, []
    try:
        yield before
    finally:
        below.modes.stack, dispatch.state.modes = before, functions


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether it is a tensor of a subclass that can be taken apart into its inner tensors and put together again."""
    return isinstance(t, Tensor) and type(t) is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """The same of a class."""
    return issubclass(t, Tensor) and t is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def transform_subclass(t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None, outer_stride: Any = None) -> Any:
    """The subclass around what `callback(name, inner tensor)` makes of its inner tensors."""
    names, context = t.__tensor_flatten__()
    made = {name: callback(name, getattr(t, name)) for name in names}
    return type(t).__tensor_unflatten__(made, context, t.size() if outer_size is None else outer_size, t.stride() if outer_stride is None else outer_stride)


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """What a handler returns: of an in-place operator its first argument."""
    name = func.overloadpacket.__name__
    return args[0] if name.endswith("_") and not name.startswith("_") and isinstance(out, Tensor) else out
