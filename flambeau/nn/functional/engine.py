"""What the functional families take from the layers below: the decorator, the Tensor class, the primitives, two helpers.

A function under `@functional` is one recorded edge (ops/registry.py says how annotations are read): its body runs only when
the edge is new, over placeholders, so it may branch on shapes, dtypes and static arguments, never on values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import flambeau as torch
from flambeau.dtypes import dtype
from flambeau.ops.promotion import fitting as fitting
from flambeau.ops.registry import Number as Number
from flambeau.ops.registry import checked as checked
from flambeau.ops.registry import operation
from flambeau.ops.signatures import whole
from flambeau.tensor import Tensor as Tensor
from flambeau.trace.mutation import assign_all
from flambeau.trace.mutation import replace as replace
from flambeau.trace.recorder import local

Body = TypeVar("Body", bound=Callable[..., Any])


def functional(body: Body, name: str | None = None) -> Body:
    """Make a composition one recorded edge, named after torch.nn.functional."""
    return cast(Body, operation(body, name=f"nn.functional.{name or body.__name__.lstrip('_')}", public=False))


def functional_with_out(body: Body) -> Body:
    """The same for what PyTorch's C++ functions are: with `out=`."""
    return cast(Body, operation(body, name=f"nn.functional.{body.__name__}", public=False, out=True))


def primitives() -> Any:
    """The primitives' namespace; asked for inside bodies, so that importing nn does not load them."""
    from flambeau.ops import primitives as prim

    return prim


def widen(x: Tensor) -> Tensor:
    """float16 and bfloat16 as float32: compositions round once, at their end, as PyTorch's CPU kernels do."""
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def widened(x: Tensor) -> dtype:
    """The dtype that `widen` gives."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def root(x: Any) -> Any:
    """Inside a body: the square root of a number, in float64."""
    return torch.sqrt(x) if isinstance(x, Tensor) else math.sqrt(x)


def dense(function: str, *tensors: Any) -> None:
    """Of functions whose checks PyTorch makes in its dense kernels: the error of sparse tensors comes first."""
    if any(isinstance(t, Tensor) and t.layout is not torch.strided for t in tensors):
        from flambeau.sparse.dispatch import refuse_layouts

        refuse_layouts(function, tensors)


def refuse_gradients(function: str, **tensors: Tensor | None) -> None:
    """Inside a body: RuntimeError if an argument of which PyTorch has no gradient requires one. `function` is PyTorch's inner name."""
    for name, t in tensors.items():
        if t is not None and t._meta.requires_grad and local.trace.grad_enabled:
            raise RuntimeError(f"The function '{function}' is not differentiable with respect to argument '{name}'. This input cannot have requires_grad True.")


def overwrite(targets: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Give every target the values of a tensor that nobody else holds, in place and outside the history of gradients."""
    if not local.trace.grad_enabled:
        assign_all(targets, values)
        return
    with torch.no_grad():
        assign_all(targets, values)


def shape_text(shape: Sequence[int]) -> str:
    """A shape as PyTorch's messages print it."""
    return str(list(shape))


def whole_size(size: float, function: str) -> int:
    """A share of a size, rounded towards minus infinity. ValueError of NaN, OverflowError of infinity, TypeError beyond 64 bits."""
    if size != size:
        raise ValueError(f"{function}(): cannot convert float NaN to integer: the output size is {size}")
    if math.isinf(size):
        raise OverflowError(f"{function}(): cannot convert float infinity to integer: the output size is {size}")
    if not -(1 << 63) <= size < 1 << 63:
        raise TypeError(f"{function}(): an output size of {size} does not fit into 64 bits; give a smaller scale")
    return math.floor(size)


def exact_entries(value: Any, count: int, name: str, function: str) -> tuple[int, ...]:
    """`entries` of functions that take a list of one number for a list that is too short."""
    found = entries(value, count, name, function)
    if isinstance(value, (tuple, list)) and len(value) != count:
        raise RuntimeError(f"{function}: {name} should be one int or {count} ints, but got {list(value)}")
    return found


def entries(value: Any, count: int, name: str, function: str) -> tuple[int, ...]:
    """An int or a sequence of `count` ints (one int stands for all) as a tuple; used for kernel sizes and the like. TypeError for anything else."""
    if value.__class__ is int:
        return (value,) * count  # type: ignore[no-any-return]
    listed = isinstance(value, (tuple, list)) or (type(value).__name__ == "ndarray" and value.ndim)
    items = tuple([v if v.__class__ is int else whole(function, name, v) for v in value]) if listed else (whole(function, name, value),)
    if len(items) == 1:
        return items * count
    if len(items) != count:
        raise RuntimeError(f"{function}: {name} should be one int or {count} ints, but got {list(items)}")
    return items
