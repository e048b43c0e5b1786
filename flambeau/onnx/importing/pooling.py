"""Pooling over windows and over whole images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau
from flambeau.nn import functional
from flambeau.onnx.importing import values
from flambeau.onnx.importing.convolution import flat_pads, padding
from flambeau.onnx.importing.registry import Call, operator


def _windows(n: Call, x: Any) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """(kernel, stride, dilation, before, after); with ceil_mode the last windows may reach over the end."""
    kernel = list(n.get("kernel_shape"))
    rank = len(kernel)
    stride, dilation = n.get("strides", [1] * rank), n.get("dilations", [1] * rank)
    before, after = padding(n, x.shape[2:], kernel, stride, dilation)
    return kernel, stride, dilation, before, after


def _reach(n: Call, sizes: Any, kernel: list[int], stride: list[int], dilation: list[int], before: list[int], after: list[int]) -> list[int]:
    """How far the last window of each dim reaches over the padded end, where ceil_mode counts it."""
    over = []
    for size, k, s, d, a, b in zip(sizes, kernel, stride, dilation, before, after, strict=True):
        free = size + a + b - d * (k - 1) - 1
        count = free // s + 1
        if n.get("ceil_mode", 0):
            count = -(-free // s) + 1
            if (count - 1) * s >= size + a:
                count -= 1
        over.append(max((count - 1) * s - free, 0))
    return over


def _taps(x: Any, kernel: list[int], stride: list[int], dilation: list[int]) -> Any:
    """A view of x with one more dim for each of the window."""
    rank = len(kernel)
    sizes, strides = list(x.shape[:2]), list(x.stride()[:2])
    counts = [(x.shape[2 + d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1 for d in range(rank)]
    sizes += [*counts, *kernel]
    strides += [x.stride(2 + d) * stride[d] for d in range(rank)] + [x.stride(2 + d) * dilation[d] for d in range(rank)]
    return x.as_strided(sizes, strides)


_MAX: dict[int, Any] = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_AVERAGE: dict[int, Any] = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


@operator("MaxPool")
def max_pool(n: Call, x: Any) -> Any:
    """The largest element of each window, and where it is among all elements."""
    kernel, stride, dilation, before, after = _windows(n, x)
    over = _reach(n, x.shape[2:], kernel, stride, dilation, before, after)
    rank = len(kernel)
    half = all(2 * b <= k for b, k in zip(before, kernel, strict=True))
    if rank in _MAX and before == after and not any(over) and not n.wants(1) and x.is_floating_point() and half:
        return _MAX[rank](x, tuple(kernel), tuple(stride), tuple(before), tuple(dilation))
    least: Any = -float("inf") if x.is_floating_point() else flambeau.iinfo(x.dtype).min
    pads = flat_pads(before, [a + o for a, o in zip(after, over, strict=True)])
    padded = functional.pad(x, pads, value=least).contiguous()
    windows = _taps(padded, kernel, stride, dilation).flatten(2 + rank)
    made = windows.amax(-1)
    if not n.wants(1):
        return made
    places: Any = flambeau.arange(math.prod(x.shape)).reshape(x.shape)
    if n.get("storage_order", 0):
        base = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * rank) * math.prod(x.shape[2:])
        inner = np.arange(math.prod(x.shape[2:])).reshape(tuple(x.shape[2:])[::-1]).transpose()
        places = values.own(np.ascontiguousarray(base + inner))
    where = _taps(functional.pad(places, pads, value=-1).contiguous(), kernel, stride, dilation).flatten(2 + rank)
    return made, where.gather(-1, windows.argmax(-1, keepdim=True)).squeeze(-1)


@operator("AveragePool")
def average_pool(n: Call, x: Any) -> Any:
    """The mean of each window; `count_include_pad`: padding counts."""
    kernel, stride, dilation, before, after = _windows(n, x)
    over = _reach(n, x.shape[2:], kernel, stride, dilation, before, after)
    rank, counted = len(kernel), bool(n.get("count_include_pad", 0))
    same = before == after and not any(over) and all(d == 1 for d in dilation) and all(2 * b <= k for b, k in zip(before, kernel, strict=True))
    if rank in _AVERAGE and same:
        return _AVERAGE[rank](x, tuple(kernel), tuple(stride), tuple(before), False, counted)
    ones = flambeau.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    if counted:
        ones = functional.pad(ones, flat_pads(before, after), value=1.0)
        ones = functional.pad(ones, flat_pads([0] * rank, over))
    else:
        ones = functional.pad(ones, flat_pads(before, [a + o for a, o in zip(after, over, strict=True)]))
    padded = functional.pad(x, flat_pads(before, [a + o for a, o in zip(after, over, strict=True)])).contiguous()
    total = _taps(padded, kernel, stride, dilation).flatten(2 + rank).sum(-1)
    return total / _taps(ones.contiguous(), kernel, stride, dilation).flatten(2 + rank).sum(-1)


@operator("LpPool")
def lp_pool(n: Call, x: Any) -> Any:
    """The p-norm of each window."""
    kernel, stride, dilation, before, after = _windows(n, x)
    over = _reach(n, x.shape[2:], kernel, stride, dilation, before, after)
    p = n.get("p", 2)
    padded = functional.pad(x, flat_pads(before, [a + o for a, o in zip(after, over, strict=True)])).contiguous()
    windows = _taps(padded, kernel, stride, dilation).flatten(2 + len(kernel))
    return (windows.abs() ** p).sum(-1) ** (1.0 / p)


@operator("GlobalAveragePool")
def global_average_pool(n: Call, x: Any) -> Any:
    """The mean of each image."""
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(n: Call, x: Any) -> Any:
    """The largest element of each image."""
    return x.amax(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalLpPool")
def global_lp_pool(n: Call, x: Any) -> Any:
    """The p-norm of each image."""
    p = n.get("p", 2)
    return (x.abs() ** p).sum(tuple(range(2, x.ndim)), keepdim=True) ** (1.0 / p)


@operator("MaxUnpool")
def max_unpool(n: Call, x: Any, places: Any, shape: Any = None) -> Any:
    """What MaxPool took, back at its places; zeros elsewhere."""
    rank = x.ndim - 2
    kernel, stride, pads = n.get("kernel_shape"), n.get("strides", [1] * rank), n.get("pads", [0] * 2 * rank)
    least = [(x.shape[2 + d] - 1) * stride[d] + kernel[d] - pads[d] - pads[d + rank] for d in range(rank)]
    sizes = [*x.shape[:2], *least]
    made = flambeau.zeros(math.prod(sizes), dtype=x.dtype).scatter(0, places.reshape(-1), x.reshape(-1)).reshape(sizes)
    if shape is None:
        return made
    wanted = values.ints(shape)
    return functional.pad(made, flat_pads([0] * rank, [w - s for w, s in zip(wanted[2:], least, strict=True)]))
