"""Reductions as ONNX nodes."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.onnx.exporting.builder import FORMS, Builder, Val, form
from flambeau.onnx.importing.values import NUMBERS


def _axes(b: Builder, x: Any, dim: Any) -> str | None:
    if dim is None or (isinstance(dim, list) and not dim):
        return None
    return b.ints(dim if isinstance(dim, (list, tuple)) else [dim])


def reduced(b: Builder, kind: str, x: Any, dim: Any, keepdim: bool) -> str:
    """A reduction over some dims or all."""
    if x.ndim == 0:
        return b.op("Identity", x)
    return b.op(kind, x, _axes(b, x, dim), keepdims=int(keepdim))


@form("sum", "mean", "logsumexp")
def sum_(b: Builder, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Sums, means, and logarithms of sums of exponentials."""
    name = b.where.split(".")[1]
    return reduced(b, {"sum": "ReduceSum", "mean": "ReduceMean", "logsumexp": "ReduceLogSumExp"}[name], b.cast(self, b.dtype()), dim, keepdim)


@form("prod")
def prod(b: Builder, self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Products."""
    return reduced(b, "ReduceProd", b.cast(self, b.dtype()), dim, keepdim)


def _ordered(b: Builder, kind: str, x: Any, dim: Any, keepdim: bool) -> str:
    if x.dtype is flambeau.bool:
        return b.op("Cast", reduced(b, kind, b.cast(x, flambeau.int32), dim, keepdim), to=NUMBERS["bool"])
    return reduced(b, kind, x, dim, keepdim)


@form("amax", "amin")
def amax(b: Builder, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest or smallest."""
    return _ordered(b, "ReduceMax" if "amax" in b.where else "ReduceMin", self, dim, keepdim)


@form("max", "min")
def max_(b: Builder, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest or smallest, with its place if a dim is given."""
    name = "Max" if ".max." in b.where else "Min"
    value = _ordered(b, f"Reduce{name}", self, dim, keepdim)
    if dim is None:
        return value
    return [value, b.op(f"Arg{name}", self, axis=dim, keepdims=int(keepdim))]


@form("argmax", "argmin")
def argmax(b: Builder, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The place of the largest or smallest."""
    kind = "ArgMax" if "argmax" in b.where else "ArgMin"
    if dim is None:
        made = b.op(kind, b.op("Reshape", self, b.ints([-1])), axis=0, keepdims=0)
        return b.op("Reshape", made, b.ints([1] * self.ndim)) if keepdim else made
    return b.op(kind, self, axis=dim, keepdims=int(keepdim))


@form("any", "all")
def any_(b: Builder, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Whether one is true, or all are."""
    x = b.cast(b.cast(self, flambeau.bool), flambeau.int32)
    return b.op("Cast", reduced(b, "ReduceMax" if ".any." in b.where else "ReduceMin", x, dim, keepdim), to=NUMBERS["bool"])


def variance(b: Builder, x: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[str, str]:
    """(variance, mean) over dims."""
    kind = x.dtype
    dims = list(range(x.ndim)) if dim is None or dim == [] else dim if isinstance(dim, list) else [dim]
    mean = b.op("ReduceMean", x, b.ints(dims), keepdims=1)
    around = b.op("Sub", x, mean)
    total = b.op("ReduceMean", b.op("Mul", around, around), b.ints(dims), keepdims=int(keepdim))
    if correction:
        count: Any = b.number(1, kind)
        for d in dims:
            count = b.op("Mul", count, b.number(b.size(x, d), kind))
        total = b.op("Mul", total, b.op("Div", count, b.op("Sub", count, b.number(float(correction), kind))))
    return total, mean if keepdim else b.op("ReduceMean", x, b.ints(dims), keepdims=0)


@form("var", "std", "var_mean", "std_mean")
def var(b: Builder, self: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None) -> Any:
    """Variances and deviations."""
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    by = correction if correction is not None else 1 if unbiased is None else int(unbiased)
    total, mean = variance(b, self, dim, by, keepdim)
    made = b.op("Sqrt", total) if ".std" in b.where else total
    return [made, mean] if "_mean" in b.where else made


@form("norm", "linalg_vector_norm", "frobenius_norm", "linalg_norm")
def norm(b: Builder, self: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, ord: Any = None, dtype: Any = None) -> Any:
    """The p-norm."""
    if ord is not None and "linalg" in b.where:
        p = ord
    if p in (2, 2.0, None, "fro"):
        return reduced(b, "ReduceL2", self, dim, keepdim)
    if p == 1:
        return reduced(b, "ReduceL1", self, dim, keepdim)
    if p == float("inf"):
        return reduced(b, "ReduceMax", Val(b.op("Abs", self), self.dtype, self.shape), dim, keepdim)
    if isinstance(p, str):
        raise b.refuse(f"the norm {p!r} has no form")
    power = b.number(float(p), self.dtype)
    total = reduced(b, "ReduceSum", Val(b.op("Pow", b.op("Abs", self), power), self.dtype, self.shape), dim, keepdim)
    return b.op("Pow", total, b.number(1.0 / float(p), self.dtype))


@form("cumsum")
def cumsum(b: Builder, self: Any, dim: int, dtype: Any = None) -> Any:
    """Running sums."""
    x = b.cast(self, b.dtype())
    return b.op("Identity", x) if self.ndim == 0 else b.op("CumSum", x, b.number(dim, flambeau.int64))


@form("softmax", "_softmax")
def softmax(b: Builder, self: Any, dim: int, dtype: Any = None, half_to_float: bool = False) -> Any:
    """Exponentials that sum to 1."""
    return b.op("Softmax", b.cast(self, b.dtype()), axis=dim)


@form("log_softmax", "_log_softmax")
def log_softmax(b: Builder, self: Any, dim: int, dtype: Any = None, half_to_float: bool = False) -> Any:
    """Their logarithms."""
    return b.op("LogSoftmax", b.cast(self, b.dtype()), axis=dim)


FORMS["softmax.int"] = softmax
FORMS["log_softmax.int"] = log_softmax
