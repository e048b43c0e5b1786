"""Whether a gradient that a program's own code gives fits the tensor that it is of: of custom functions, and of hooks that replace one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.meta import Meta


def check_real(t: Tensor) -> None:
    """RuntimeError for a complex tensor, where a backward pass begins without a gradient."""
    if t.dtype.is_complex:
        raise RuntimeError(
            f"grad can be implicitly created only for real scalar outputs but got {t.dtype!r}: take its .real, .imag or .abs(), or pass a gradient"
        )


def gradient(function: str, index: int, given: Any, meta: Meta) -> Tensor | None:
    """What a custom function's backward has given for argument `index`, in that argument's shape and dtype.

    It may have dims that the argument has not, or more entries where the argument has one: the argument was broadcast, and they are added up.
    RuntimeError if it is no tensor, has another shape, or is complex where the argument is real.
    """
    from flambeau.tensor import Tensor

    if given is None:
        return None
    if not isinstance(given, Tensor):
        raise RuntimeError(f"{function}: expected Variable or None (got {type(given).__name__}) as the gradient at index {index}: return a tensor, or None")
    have, shape = tuple(given.shape), tuple(meta.shape)
    if have != shape:
        if len(shape) > len(have) or any(s not in (1, n) for s, n in zip(shape[::-1], have[::-1], strict=False)):
            raise RuntimeError(
                f"Function {function} returned an invalid gradient at index {index} - got {list(have)} but expected shape compatible with "
                f"{list(shape)}, the shape of that argument: return a gradient of this shape, or of one to which this shape broadcasts"
            )
        given = given.sum_to_size(shape)
    if given.dtype is not meta.dtype:
        if not given.dtype.is_floating_point and given.dtype.is_complex != meta.dtype.is_complex:
            raise RuntimeError(
                f"Function {function} returned an invalid gradient at index {index} - got {given.dtype!r} for an argument of {meta.dtype!r}: "
                "the gradient of a real tensor is real (take its .real), that of a complex one is complex or a real float"
            )
        given = given.to(meta.dtype)
    return given


def replacement(hook: Callable[..., Any], before: Tensor, after: Any) -> Tensor:
    """What a hook has returned in the place of a gradient, which must have its type and size (TypeError if it is no tensor, else RuntimeError)."""
    from flambeau.tensor import Tensor

    if not isinstance(after, Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(after).__name__}': a hook returns a tensor in the place of the gradient, or None")
    name = getattr(hook, "__name__", "<unknown>")
    if after.dtype is not before.dtype or after.layout is not before.layout:
        raise RuntimeError(f"hook '{name}' has changed the type of value (was {before.type()} got {after.type()}): the gradient keeps its dtype and layout")
    if tuple(after.shape) != tuple(before.shape):
        raise RuntimeError(f"hook '{name}' has changed the size of value (was {list(before.shape)} got {list(after.shape)}): the gradient keeps its shape")
    return after
