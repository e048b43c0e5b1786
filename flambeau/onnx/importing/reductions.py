"""Operators that make one element of many: sums, maxima, running sums, softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.onnx.importing import values
from flambeau.onnx.importing.pointwise import narrowed
from flambeau.onnx.importing.registry import Call, operator


def _reduction(f: Callable[..., Any]) -> Callable[..., Any]:
    """An operator over axes, of an attribute or an input: all of them if none are given, or none at all with noop_with_empty_axes."""

    def run(n: Call, x: Any, axes: Any = None) -> Any:
        where = n.ints("axes", axes)
        if not where:
            if n.get("noop_with_empty_axes", 0):
                return f(x.unsqueeze(0), (0,), False) if f in _ELEMENTS else x
            where = list(range(x.ndim))
        if x.ndim == 0:
            return f(x.reshape(1), (0,), False)
        return f(x, tuple([w % x.ndim for w in where]), bool(n.get("keepdims", 1)))

    return run


def _limit(largest: bool) -> Callable[..., Any]:
    def reduce(x: Any, dims: Any, keep: bool) -> Any:
        if x.dtype is flambeau.bool:
            return reduce(x.to(flambeau.uint8), dims, keep).to(flambeau.bool)
        if 0 in [x.shape[d] for d in dims]:
            if x.is_floating_point():
                fill: Any = -float("inf") if largest else float("inf")
            else:
                fill = flambeau.iinfo(x.dtype).min if largest else flambeau.iinfo(x.dtype).max
            return flambeau.full([1 if i in dims else s for i, s in enumerate(x.shape) if keep or i not in dims], fill, dtype=x.dtype)
        return (x.amax if largest else x.amin)(dim=dims, keepdim=keep)

    return reduce


def _sum(x: Any, dims: Any, keep: bool) -> Any:
    return narrowed(lambda t: t.sum(dim=dims, keepdim=keep, dtype=t.dtype), x)


def _product(x: Any, dims: Any, keep: bool) -> Any:
    def all_of(t: Any) -> Any:
        for d in sorted(dims, reverse=True):
            t = t.prod(dim=d, keepdim=keep, dtype=t.dtype)
        return t

    return narrowed(all_of, x)


def _mean(x: Any, dims: Any, keep: bool) -> Any:
    if x.is_floating_point():
        return x.mean(dim=dims, keepdim=keep)
    count = 1
    for d in dims:
        count *= x.shape[d]
    return flambeau.div(_sum(x, dims, keep), count, rounding_mode="trunc")


def _l1(x: Any, dims: Any, keep: bool) -> Any:
    return _sum(x.abs(), dims, keep)


def _square(x: Any, dims: Any, keep: bool) -> Any:
    return _sum(x * x, dims, keep)


def _l2(x: Any, dims: Any, keep: bool) -> Any:
    if not x.is_floating_point():
        return _l2(x.to(flambeau.float64), dims, keep).to(x.dtype)
    return _square(x, dims, keep).sqrt()


def _log_sum(x: Any, dims: Any, keep: bool) -> Any:
    if not x.is_floating_point():
        return _log_sum(x.to(flambeau.float64), dims, keep).to(x.dtype)
    return _sum(x, dims, keep).log()


def _log_sum_exp(x: Any, dims: Any, keep: bool) -> Any:
    if not x.is_floating_point():
        return _log_sum_exp(x.to(flambeau.float64), dims, keep).to(x.dtype)
    return flambeau.logsumexp(x, dim=dims, keepdim=keep)


_ELEMENTS = (_l1, _square, _l2, _log_sum, _log_sum_exp)  # what they do of one element changes it

for _name, _f in {"ReduceSum": _sum, "ReduceProd": _product, "ReduceMean": _mean, "ReduceMax": _limit(True), "ReduceMin": _limit(False), "ReduceL1": _l1,
                  "ReduceL2": _l2, "ReduceSumSquare": _square, "ReduceLogSum": _log_sum, "ReduceLogSumExp": _log_sum_exp}.items():  # fmt: skip
    operator(_name)(_reduction(_f))


def _place(largest: bool) -> Callable[..., Any]:
    def run(n: Call, x: Any) -> Any:
        axis, keep = n.get("axis", 0), bool(n.get("keepdims", 1))
        find = flambeau.argmax if largest else flambeau.argmin
        if n.get("select_last_index", 0):
            return x.shape[axis] - 1 - find(x.flip((axis,)), dim=axis, keepdim=keep)
        return find(x, dim=axis, keepdim=keep)

    return run


operator("ArgMax")(_place(True))
operator("ArgMin")(_place(False))


def _running(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(n: Call, x: Any, axis: Any) -> Any:
        d = int(values.number(axis))
        one = 0 if f is flambeau.cumsum else 1
        if n.get("reverse", 0):
            x = x.flip((d,))
        made = f(x, dim=d).to(x.dtype)
        if n.get("exclusive", 0):
            first = flambeau.full_like(x.narrow(d, 0, 1), one)
            made = flambeau.cat([first, made.narrow(d, 0, x.shape[d] - 1)], dim=d)
        return made.flip((d,)) if n.get("reverse", 0) else made

    return run


operator("CumSum")(_running(flambeau.cumsum))
operator("CumProd")(_running(flambeau.cumprod))


def _normalised(f: Callable[..., Any]) -> Callable[..., Any]:
    """Softmax and kin: along a dim, and before opset 13 over all dims from it on."""

    def run(n: Call, x: Any) -> Any:
        if n.version >= 13:
            return f(x, n.get("axis", -1))
        axis = n.get("axis", 1) % max(x.ndim, 1)
        rows = 1
        for size in x.shape[:axis]:
            rows *= size
        return f(x.reshape(rows, -1), 1).reshape(x.shape)

    return run


def _hardmax(x: Any, axis: int) -> Any:
    places = x.argmax(dim=axis, keepdim=True)
    return flambeau.zeros_like(x).scatter(axis, places, 1.0)


operator("Softmax")(_normalised(lambda x, d: flambeau.softmax(x, d)))
operator("LogSoftmax")(_normalised(lambda x, d: flambeau.log_softmax(x, d)))
operator("Hardmax")(_normalised(_hardmax))


@operator("LpNormalization")
def lp_normalization(n: Call, x: Any) -> Any:
    """x divided by its norm along a dim; 0 where the norm is 0."""
    axis = n.get("axis", -1)
    norm = x.abs().sum(axis, keepdim=True) if n.get("p", 2) == 1 else (x * x).sum(axis, keepdim=True).sqrt()
    return flambeau.where(norm == 0, flambeau.zeros((), dtype=x.dtype), x / norm)
