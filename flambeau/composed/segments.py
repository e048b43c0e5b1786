"""Reductions over segments, and older constructors of the torch namespace: segment_reduce, range, kaiser_window."""

from __future__ import annotations

import inspect
import math
from functools import cache
from typing import Any

import flambeau as torch
from flambeau.ops.creation import check_range
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.given_out import given_back, must_fit
from flambeau.ops.guard import check
from flambeau.tensor import Tensor
from flambeau.trace.mutation import into
from flambeau.trace.once import warn_here

_EMPTY = {"sum": 0.0, "mean": float("nan"), "max": float("-inf"), "min": float("inf"), "prod": 1.0}
_SCATTER = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "prod": "prod"}


def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None, offsets: Tensor | None = None, axis: int = 0,
    unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Neighbouring entries of the dim `axis` reduced in segments: "sum", "mean", "max" (or "amax"), "min" (or "amin"), "prod".

    The segments' `lengths` (*, segments), or their `offsets` (*, segments + 1), stand for each of the dims before `axis`.
    An empty segment gives `initial`, or the reduction's neutral value (NaN for a mean). RuntimeError where lengths do not add up.
    """
    refuse_dtype("segment_reduce", data.dtype)
    reduce = {"amax": "max", "amin": "min"}.get(reduce, reduce)
    if reduce not in _SCATTER:
        raise RuntimeError(f"segment_reduce(): unsupported reduction {reduce!r}; it must be sum, mean, max, min or prod")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if (lengths is None) == (offsets is None):
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined, and not both.")
    axis = axis % max(data.ndim, 1)
    if offsets is not None:
        lengths = offsets.diff(dim=-1)
    assert lengths is not None
    if lengths.ndim != axis + 1 or tuple(lengths.shape[:-1]) != tuple(data.shape[:axis]):
        raise RuntimeError(
            f"segment_reduce(): Expected lengths of shape {(*data.shape[:axis], 'segments')} for data of shape {tuple(data.shape)} and axis "
            f"{axis}, but got {tuple(lengths.shape)}"
        )
    size, segments = data.shape[axis], lengths.shape[-1]
    if not unsafe and lengths.numel() and (bool((lengths < 0).any()) or bool((lengths.sum(-1) != size).any())):
        raise RuntimeError(
            f"segment_reduce(): Expected all rows of lengths along axis {axis} to be non-negative and to sum to data.size({axis}), which is {size}"
        )
    ends = lengths.cumsum(-1)
    places = torch.arange(size).expand(*data.shape[:axis], size).contiguous()
    owner = torch.searchsorted(ends.contiguous(), places, right=True)  # what is beyond the last segment gets one more, cut off below
    owner = owner.reshape(*owner.shape, *[1] * (data.ndim - axis - 1)).expand(data.shape)
    start = _EMPTY[reduce] if initial is None else initial
    shape = (*data.shape[:axis], segments + 1, *data.shape[axis + 1 :])
    base = torch.full(shape, (initial or 0.0) if reduce == "mean" else start, dtype=data.dtype)
    if reduce in ("max", "min"):
        return _extremes(data, axis, owner, segments, reduce, shape, start)
    if reduce == "prod" and data.requires_grad:
        return _product().apply(data, base, owner, axis)[0].narrow(axis, 0, segments)  # type: ignore[no-any-return]
    if reduce != "mean":
        return base.scatter_reduce(axis, owner, data, _SCATTER[reduce]).narrow(axis, 0, segments)
    total = base.scatter_reduce(axis, owner, data, "sum").narrow(axis, 0, segments)
    counts = lengths.reshape(*lengths.shape, *[1] * (data.ndim - axis - 1)).expand(total.shape)
    return torch.where(counts > 0, total / counts.clamp(min=1), start)


@cache
def _product() -> Any:
    class SegmentProduct(torch.autograd.Function):
        """Products of segments with PyTorch's gradient: the product of the others for zeros and NaNs, result / entry for all else."""

        generate_vmap_rule = True

        @staticmethod
        def forward(data: Any, base: Any, owner: Any, axis: int) -> Any:
            return (base.scatter_reduce(axis, owner, data, "prod"),)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            data, base, owner, ctx.axis = inputs
            ctx.save_for_backward(data, base, owner)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            data, base, owner = ctx.saved_tensors
            axis = ctx.axis
            result = base.scatter_reduce(axis, owner, data, "prod")  # once more: second gradients go through it

            def alike(source: Any) -> Any:
                """How many of each entry's segment are so, beside itself."""
                source = source.to(data.dtype)
                return torch.zeros(base.shape, dtype=data.dtype).scatter_reduce(axis, owner, source, "sum").gather(axis, owner) - source

            zero, lost = data == 0, data.isnan()
            special = zero | lost
            # The product of the others, of which one may be zero or NaN, too.
            rest = base.scatter_reduce(axis, owner, data.masked_fill(special, 1.0), "prod").gather(axis, owner)
            rest = torch.where(alike(lost) > 0, math.nan, torch.where(alike(zero) > 0, rest * 0.0, rest))
            own = gradient.gather(axis, owner)
            kept = (gradient * result).gather(axis, owner) / data.masked_fill(special, 1.0)
            return torch.where(special, own * rest, kept), None, None, None

    return SegmentProduct


def _extremes(data: Tensor, axis: int, owner: Tensor, segments: int, reduce: str, shape: tuple[int, ...], start: float) -> Tensor:
    """The largest or least entries of segments. Entries that are equal share a gradient: with one another, not with the value `start`."""

    neutral, how = _EMPTY[reduce], _SCATTER[reduce]

    def collected(source: Tensor, empty: float, how: str) -> Tensor:
        return torch.full(shape, empty, dtype=data.dtype).scatter_reduce(axis, owner, source, how)

    def bounded(found: Tensor) -> Tensor:
        found = found.narrow(axis, 0, segments)
        return torch.where((found < start if reduce == "max" else found > start) | math.isnan(start), start, found)

    if not data.requires_grad:
        return bounded(collected(data, neutral, how))
    lost = data.isnan()  # a NaN is the result of its segment, whose gradient goes to its NaNs
    numbers = data.masked_fill(lost, neutral)
    best = collected(numbers.detach(), neutral, how).gather(axis, owner)
    # What is not chosen has no part in the gradient, where an infinite one would make NaN of its share of 0.
    found = bounded(collected(torch.where(numbers.detach() == best, numbers, neutral), neutral, how))
    number, total = [collected(x, 0.0, "sum").narrow(axis, 0, segments) for x in (lost.to(data.dtype), torch.where(lost, data, 0.0))]
    return torch.where(number > 0, total / number.clamp(min=1), found)


_segment_reduce = segment_reduce  # the name under which it began, which packages still use


def range_(start: float = 0, end: float = 0, step: float = 1, *, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """Numbers from start to end, both included. Deprecated in PyTorch: use arange."""
    warn_here(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with Python's range builtin. "
        "Instead, use torch.arange, which produces values in [start, end).",
    )  # fmt: skip
    check("range", ("start", "end", "step"), (start, end, step), (inspect.Parameter.empty,) * 3)
    start, end, step = check_range("range", start, end, step)
    if out is not None:
        must_fit("range", out, dtype, layout, device)
    kind = dtype or (torch.get_default_dtype() if out is None else out.dtype)
    steps = torch.arange(int((end - start) / step) + 1, dtype=torch.float64)
    result = (steps * step + start).to(device=device if out is None else out.device, dtype=kind)
    return given_back(into(out, result, "range"), requires_grad)  # type: ignore[no-any-return]


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, layout: Any = torch.strided, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """I0(beta sqrt(1 - x^2)) / I0(beta) for x from -1 to 1; `periodic`: without the last point."""
    from flambeau.ops.more import window_dtype
    from flambeau.signal.windows import kaiser

    kind = window_dtype("kaiser_window", dtype)
    if window_length < 0:
        raise RuntimeError(f"kaiser_window requires non-negative window_length, got window_length={window_length}")
    wide = kind if kind.itemsize > 2 else torch.float32
    with torch.device("cpu"):  # it looks at numbers on its way
        window = kaiser(window_length, beta=beta, sym=not periodic, dtype=wide, layout=layout)
    return window.to(device=device, dtype=kind).requires_grad_(requires_grad)  # type: ignore[no-any-return]


range = range_
