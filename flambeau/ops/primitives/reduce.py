"""Reductions and scans. attr dims: sorted, non-negative; the result has the input's shape without them."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.compiler.graph import Value
from flambeau.ops.primitive import Primitive, dense, primitive
from flambeau.ops.primitives.pointwise import _conj, isnan, mul, where
from flambeau.trace.meta import Meta
from flambeau.trace.recorder import local


def _kept(m: Meta, dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([size for d, size in enumerate(m.shape) if d not in dims])


def _reduce_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return dense(_kept(metas[0], attrs["dims"]), metas[0].dtype)


def _arg_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return dense(_kept(metas[0], attrs["dims"]), dtypes.int64)


def spread(c: Any, x: Any) -> Any:
    """A reduced value with its dims back, as size 1, so that it broadcasts against the input."""
    shape = [1 if d in c.attrs["dims"] else size for d, size in enumerate(c.shape(0))]
    return x.reshape(shape)


@primitive("sum", _reduce_rule)
def sum(c, g):
    return spread(c, g).expand(c.shape(0))


@primitive("prod", _reduce_rule)
def prod(c, g):
    """The product of the others: exact also where elements are zero (exclusive products from both sides)."""
    x = c.input(0)
    dims = c.attrs["dims"]
    ndim = len(c.shape(0))
    order = [d for d in range(ndim) if d not in dims] + list(dims)
    moved = x.permute(order)
    lead = [c.shape(0)[d] for d in range(ndim) if d not in dims]
    if 0 in c.shape(0):
        return spread(c, g).expand(c.shape(0))
    rows = moved.reshape([*lead, -1])
    ones = rows.new_ones([*lead, 1])
    before = concatenate_last([ones, cumprod(rows, dim=len(lead)).narrow(-1, 0, rows.shape[-1] - 1)])
    flipped = cumprod(rows.flip(-1), dim=len(lead)).narrow(-1, 0, rows.shape[-1] - 1)
    after = concatenate_last([flipped.flip(-1), ones])
    others = (before * after).reshape(moved.shape)
    inverse = sorted(range(ndim), key=order.__getitem__)
    return spread(c, g) * _conj(others.permute(inverse))


def concatenate_last(parts: list[Any]) -> Any:
    from flambeau.ops.primitives.move import concatenate

    return concatenate(*parts, dim=parts[0]._meta.ndim - 1)


def _extreme(c: Any, g: Any) -> Any:
    """Equal shares among all elements that attain the extreme."""
    x = c.input(0)
    out = spread(c, c.output(0))
    mask = x.eq(out)
    if x._meta.dtype.is_floating_point:
        mask = where(isnan(out), isnan(x), mask)
    share = mask.to(g.dtype)
    count = share.sum(list(c.attrs["dims"]))
    return mul(share, spread(c, g / count).expand(c.shape(0)))


@primitive("amax", _reduce_rule)
def amax(c, g):
    return _extreme(c, g)


@primitive("amin", _reduce_rule)
def amin(c, g):
    return _extreme(c, g)


argmax = Primitive("argmax", _arg_rule, None)
argmin = Primitive("argmin", _arg_rule, None)


def _var_mean_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    shape = _kept(metas[0], attrs["dims"])
    return dense(shape, metas[0].dtype) + dense(shape, metas[0].dtype)


@primitive("var_mean", _var_mean_rule)
def var_mean(c, g_var, g_mean):
    """attrs dims, correction (0 or more): two outputs, variance and mean."""
    count = 1
    for d in c.attrs["dims"]:
        count *= c.shape(0)[d]
    grad = None
    if g_var is not None:
        freedom = count - c.attrs["correction"]  # as a divisor: a count is no fact of the kernel
        part = g_var * 2.0 / freedom if freedom > 0 else g_var * float("nan")
        grad = spread(c, part) * (c.input(0) - spread(c, c.output(1)))
    if g_mean is not None:
        part = spread(c, g_mean / count).expand(c.shape(0))
        grad = part if grad is None else grad + part
    return grad


def _scan_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    return dense(tuple(metas[0].shape), metas[0].dtype)


def _reverse_cumsum(g: Any, dim: int) -> Any:
    return cumsum(g.flip(dim), dim=dim).flip(dim)


@primitive("cumsum", _scan_rule)
def cumsum(c, g):
    return _reverse_cumsum(g, c.attrs["dim"])


def _cumprod_with_history(x: Any, g: Any, dim: int) -> Any:
    """The same without a division, and so differentiable where x has zeros, at n times the cost: row i of a square has the
    cumulative products with element i replaced by one."""
    n = x.shape[dim]
    rows = x.movedim(dim, -1)
    upto = x.new_ones((n, n)).triu().to(dtypes.bool_)
    own = upto & upto.t()
    products = cumprod(where(own, 1.0, rows.unsqueeze(-2).expand(*rows.shape, n)), dim=rows.ndim)
    return where(upto, _conj(products) * g.movedim(dim, -1).unsqueeze(-2), 0.0).sum(-1).movedim(-1, dim)


@primitive("cumprod", _scan_rule)
def cumprod(c, g):
    """Where x has no zero: reverse_cumsum(g * out) / x. After the first zero of a row only that zero gets a gradient;
    the products that leave it out are the cumulative products with it replaced by one."""
    x, dim = c.input(0), c.attrs["dim"]
    if local.trace.grad_enabled and c.input(0).requires_grad:
        return _cumprod_with_history(x, g, dim)
    zero = x.eq(0)
    zeros_seen = cumsum(zero.to(dtypes.int64), dim=dim)
    first = zero & zeros_seen.eq(1)
    out = c.output(0)
    usual = _reverse_cumsum(g * _conj(out), dim) / _conj(where(zero, 1.0, x))
    without = cumprod(where(first, 1.0, x), dim=dim)
    at_first = _reverse_cumsum(where(zeros_seen.eq(1), g * _conj(without), 0.0), dim)
    before = where(zeros_seen.eq(0), usual, 0.0)
    return before + where(first, at_first, 0.0)


def _scan_pair_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    shape = tuple(metas[0].shape)
    return dense(shape, metas[0].dtype) + dense(shape, dtypes.int64)


def _running_extreme(c: Any, g: Any, _: Any) -> Any:
    from flambeau.ops.primitives.move import scatter, zeros_of

    if g is None:
        return None
    return scatter(zeros_of(c.shape(0), g._meta.dtype), c.output(1), g, dim=c.attrs["dim"], mode="add")


@primitive("cummax", _scan_pair_rule)
def cummax(c, g, _):
    return _running_extreme(c, g, _)


@primitive("cummin", _scan_pair_rule)
def cummin(c, g, _):
    return _running_extreme(c, g, _)


@primitive("logcumsumexp", _scan_rule)
def logcumsumexp(c, g):
    """d out[j] / d x[i] = exp(x[i] - out[j]) for j >= i; the sum over j is a reverse logcumsumexp of log|g| - out,
    taken apart by sign so that nothing overflows."""
    from flambeau.ops.primitives.pointwise import abs, exp, log

    x, out, dim = c.input(0), c.output(0), c.attrs["dim"]
    minus_infinity = float("-inf")

    def part(sign_matches: Any) -> Any:
        weight = where(sign_matches, log(where(sign_matches, abs(g), 1.0)) - out, minus_infinity)
        return exp(logcumsumexp(weight.flip(dim), dim=dim).flip(dim) + x)

    return part(g.gt(0)) - part(g.lt(0))
