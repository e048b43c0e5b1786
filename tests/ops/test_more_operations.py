"""The functions of joining.py, numeric.py, foreach.py and more.py against PyTorch: one line each."""

from __future__ import annotations

import random

import numpy as np
import pytest

import flambeau as ft
from tests.ops.oracle import Expression, arrays, check, compare

torch = pytest.importorskip("torch")

X = [(3, 4)]
XY = [(3, 4), (3, 4)]
EXPRESSIONS = {
    "sizes one by one": (lambda m, x: (x.broadcast_to(2, 3, 4), x.broadcast_to((3, 4)), x.broadcast_to(size=(1, 3, 4)), x[0].broadcast_to(3, 4)), X),
    # joining
    "stacks": (lambda m, x, y: (m.hstack([x, y]), m.vstack([x, y]), m.dstack([x, y]), m.column_stack([x, y[:, 0]]), m.row_stack((x[0], y)),
                                m.hstack((x[0], y[0])), m.vstack((x[0], y[0])), m.dstack((x[0], y[0])), m.column_stack((x[0], y[0]))), XY),
    "at least": (lambda m, x, y: (m.atleast_1d(x[0, 0]), m.atleast_2d(x[0]), m.atleast_3d(x), m.atleast_3d(x[0], y), m.atleast_2d(x[0, 0], y)), XY),
    "cuts": (lambda m, x: (m.hsplit(x, 2), m.vsplit(x, 3), m.hsplit(x, [1, 3]), x.vsplit([1]), x.view(3, 2, 2).dsplit(2), m.hsplit(x[0], 2)), X),
    "blocks": (lambda m, x, y: (m.block_diag(x, y[0], y[:, :2]), m.cartesian_prod(x[0], y[:, 0]), m.combinations(x[0]), m.combinations(x[0], 3, True)), XY),
    "rot90": (lambda m, x: (m.rot90(x), m.rot90(x, 2), m.rot90(x, -1), x.rot90(4), x.view(3, 2, 2).rot90(1, (2, 0)), m.diagflat(x, 1)), X),
    "placed": (lambda m, x, y: (m.select_scatter(x, y[:, 0], 1, 2), m.slice_scatter(x, y[:, :2], 1, 0, 4, 2), m.diagonal_scatter(x, y[0, :3])), XY),
    # PyTorch 2.13's gradient of as_strided_scatter drops what lies beyond the written part
    "strided": (lambda m, x, y: m.as_strided_scatter(x.detach(), y[:2, :2].detach(), (2, 2), (1, 2), 1), XY),
    "where method": (lambda m, x, y: (x.where(x > 0, y), x.where(y > 0, 0.0)), XY),
    "put": (lambda m, x, y: (x.put(m.tensor([[1, 5], [7, 2]]), y[:2, :2]), x.put(m.tensor([0, 0]), y[0, :2], accumulate=True)), XY),
    "unravel": (lambda m: (m.unravel_index(m.tensor([0, 5, 11]), (3, 4)), m.unravel_index(m.tensor([[7]]), (2, 2, 2))), []),
    "static": (lambda m, x: (m.nonzero_static(x > 0, size=3), m.nonzero_static(x > 0, size=20), m.unsafe_chunk(x, 2, 1), m.unsafe_split(x, 3, 1)), X),
    # numeric
    "trapezoid": (lambda m, x, y: (m.trapezoid(x), m.trapz(x, dim=0), m.trapezoid(x, dx=0.5), m.trapezoid(x, y), m.trapezoid(x, y[0], dim=1),
                                   m.cumulative_trapezoid(x), m.cumulative_trapezoid(x, y, dim=0), m.cumulative_trapezoid(x, dx=2)), XY),
    "gradient": (lambda m, x: (m.gradient(x), m.gradient(x, spacing=0.5, dim=1), m.gradient(x, spacing=(2.0, 0.5)), m.gradient(x, edge_order=2),
                               m.gradient(x, spacing=[m.tensor([0.0, 1.0, 3.0], dtype=x.dtype)], dim=0)), X),
    "cov": (lambda m, x: (m.cov(x), m.cov(x[0]), m.cov(x, correction=0), m.cov(x, fweights=m.tensor([1, 2, 1, 3])),
                          m.cov(x, aweights=m.tensor([0.5, 1.0, 2.0, 1.0], dtype=x.dtype)), m.corrcoef(x), m.corrcoef(x[0])), X),
    "cross": (lambda m, x, y: (m.cross(x, y, dim=0), m.cross(x, y), x.t().cross(y.t(), dim=-1)), XY),
    "dist": (lambda m, x, y: (m.dist(x, y), m.dist(x, y, 1), x.dist(y, 3), m.dist(x, y, float("inf"))), XY),
    "renorm": (lambda m, x: (m.renorm(x, 2, 0, 1.0), x.renorm(1, 1, 2.0)), X),
    "vander": (lambda m, x: (m.vander(x[0].detach()), m.vander(x[0].detach(), 3, increasing=True), m.vander(m.tensor([1, 2, 3]), 4)), X),
    "float_power": (lambda m, x: (m.float_power(x, 2), m.float_power(x.abs() + 1, x), m.float_power(2, x), m.float_power(m.tensor([1, 2]), -1)), X),
    "ldexp": (lambda m, x: (m.ldexp(x, m.tensor([0, 1, 2, 3])), m.mvlgamma(x.abs() + 3, 3)), X),
    # small names
    "copies": (lambda m, x: (m.expand_copy(x, (2, 3, 4)), m.transpose_copy(x, 0, 1), m.unbind_copy(x), m.narrow_copy(x, 1, 1, 2), m.t_copy(x),
                             m.permute_copy(x, (1, 0)), m.squeeze_copy(x[:1]), m.view_copy(x, (4, 3)), x.narrow_copy(0, 1, 1), m.diagonal_copy(x)), X),
    "fill": (lambda m, x: (m.fill(x, 3.0), m.adjoint(x), m.resolve_conj(x), m.resolve_neg(x)), X),
    "index_reduce": (lambda m, x, y: tuple(x.index_reduce(0, m.tensor([0, 2, 0]), y, r, include_self=s)
                                            for r in ("prod", "mean", "amax") for s in (True, False)), XY),
    "foreach": (lambda m, x, y: (m._foreach_add([x, y], 1.0), m._foreach_mul([x, y], [y, x]), m._foreach_neg((x, y)), m._foreach_sqrt([x.abs() + 1]),
                                 m._foreach_div([x], [y.abs() + 1]), m._foreach_addcmul([x], [y], [x], value=2.0), m._foreach_maximum([x], [y]),
                                 m._foreach_lerp([x], [y], 0.25), m._foreach_add([x], [y], alpha=2), m._foreach_pow([x], 2), m._foreach_norm([x, y])), XY),
    "windows": (lambda m: tuple(getattr(m, f"{w}_window")(n, p, dtype=m.float64)
                           for w in ("hann", "hamming", "blackman", "bartlett") for n in (1, 8, 9) for p in (True, False)), []),
    "made": (lambda m, x: (m.scalar_tensor(2), m.empty_permuted((2, 3, 4), (0, 2, 1)).stride(), x.new_empty_strided((2, 3), (1, 2)).stride()), X),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression(name: str) -> None:
    expression, shapes = EXPRESSIONS[name]
    again = name not in ("foreach", "cov", "index_reduce", "renorm")
    check(expression, arrays(*shapes), second=again, strides=name not in ("static", "unravel"), tolerance=1e-9 if shapes else 1e-7)


WITHOUT_GRADIENT = {
    "gcd": (lambda m, x, y: (m.gcd(x, y), m.lcm(x, y), m.gcd(x, m.tensor(6)), x.gcd(y[0])), "int64"),
    "gcd int32": (lambda m, x, y: (m.gcd(x, y), m.lcm(x, y)), "int32"),
    "frexp": (lambda m, x, y: (m.frexp(x), (x * y).frexp()), "float64"),
    "frexp float32": (lambda m, x, y: (m.frexp(x), m.frexp(m.tensor([0.0, -0.0, 1e-40, float("inf"), 1.0, -3.5]))), "float32"),
    "histogram": (lambda m, x, y: (m.histogram(x, 5), m.histogram(x, 4, range=(-10.0, 10.0)), x.histogram(m.tensor([-9.0, -1.0, 3.0, 11.0], dtype=x.dtype)),
                                   m.histogram(x, 3, weight=y, density=True)), "float64"),
    "questions": (lambda m, x, y: (m.is_same_size(x, y), m.is_signed(x), x.is_set_to(x), x.is_set_to(y), m.is_conj(x), x.is_neg()), "float64"),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_without_gradient(name: str) -> None:
    expression, dtype = WITHOUT_GRADIENT[name]
    check(expression, arrays((3, 4), (3, 4), low=-12, high=12, dtype=dtype), grad=False, tolerance=1e-7)


def _in_place(m, x, y):
    a, b, c, d = (x + 0 for _ in range(4))
    a.transpose_(0, 1)
    a.mul_(2)
    b.unsqueeze_(1).squeeze_(1).t_().add_(1)
    c.as_strided_((2, 2), (4, 1), 1)
    d.swapaxes_(0, 1).put_(m.tensor([0, 3]), y[0, :2])
    e = y * 1
    view = e[0]
    e.t_()
    view.zero_()
    return a, b, c, d, e, view


def test_in_place_views() -> None:
    check(_in_place, arrays(*XY))


def test_in_place_view_of_earlier_history() -> None:
    """The tensor has been computed before it becomes a view: its gradient still flows."""
    results = []
    for m in (ft, torch):
        x = m.arange(6.0).reshape(2, 3).requires_grad_()
        y = x * x
        y.tolist()
        (y * 1).tolist()
        y.t_()
        (y * m.arange(6.0).reshape(3, 2)).sum().backward()
        results.append((y.detach(), x.grad))
    compare(*results)


def test_in_place_view_of_a_leaf() -> None:
    for m in (ft, torch):
        with pytest.raises(RuntimeError, match="leaf Variable"):
            m.ones(2, 3).requires_grad_().t_()


def test_resize() -> None:
    for m in (ft, torch):
        x = m.arange(6.0)
        y = x.clone()
        y.resize_(2, 2)
        assert y.tolist() == [[0.0, 1.0], [2.0, 3.0]]
        y.resize_(6)
        assert y.tolist() == [0, 1, 2, 3, 4, 5]
        y.resize_(3, 4)
        assert y.shape == (3, 4) and y.view(-1)[:6].tolist() == [0, 1, 2, 3, 4, 5]
        assert y.resize_as_(m.zeros(2, 1)).tolist() == [[0.0], [1.0]]


def test_written_in_place() -> None:
    def writes(m, x, y):
        a, b, c = x.clone(), x.clone(), m.zeros(7, 3, dtype=x.dtype)
        m._foreach_mul_([a, b], [y, x])
        m._foreach_addcdiv_([a], [y], [y.abs() + 1], value=0.5)
        m._foreach_lerp_([a], [b], 0.3)
        m._foreach_addcmul_([a], [b], [y], [0.5])
        m._foreach_copy_([b], [y])
        m._foreach_sub_([b], 1)
        m._foreach_mul_([b], 3.0)
        d = x.clone()
        m._foreach_zero_([d])
        c.fill_diagonal_(2, wrap=True)
        e = x.clone().masked_scatter_(x > 0, y)
        f = x.clone().apply_(lambda v: v * 3)
        g = x.clone().map_(y, lambda v, w: v - w)
        h = m.zero_(x.clone()), m.fill_(x.clone(), 2)
        i = x.clone().renorm_(2, 0, 1.0), x.clone().float_power_(2)
        return a, b, c, d, e, f, g, *h, *i

    check(writes, arrays(*XY), grad=False)


ERRORS = {
    "hstack": lambda m, x: m.hstack([]),
    "hsplit": lambda m, x: m.hsplit(x, 3),
    "vsplit": lambda m, x: m.vsplit(x[0], 1),
    "rot90": lambda m, x: m.rot90(x, 1, (0, 0)),
    "cartesian": lambda m, x: m.cartesian_prod(x, x),
    "select_scatter": lambda m, x: m.select_scatter(x, x, 0, 0),
    "gcd": lambda m, x: m.gcd(x, x),
    "cross": lambda m, x: m.cross(x, x, dim=1),
    "renorm": lambda m, x: m.renorm(x[0], 2, 0, 1.0),
    "gradient": lambda m, x: m.gradient(x[:1]),
    "foreach": lambda m, x: m._foreach_add([x, x], [x]),
    "vander": lambda m, x: m.vander(x),
    "put": lambda m, x: x.put(m.tensor([0, 1]), x),
    "nonzero_static": lambda m, x: m.nonzero_static(x, size=-1),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    """The exception type is PyTorch's."""
    data = np.ones((3, 4))
    with pytest.raises(Exception) as expected:
        ERRORS[name](torch, torch.tensor(data))
    with pytest.raises(expected.type):
        ERRORS[name](ft, ft.tensor(data))


@pytest.mark.parametrize("expression", [
    lambda t, x: t.where(x > 0),
    lambda t, x: t.where(x[0, 0] > 0),
    lambda t, x: x.split(split_size=2, dim=1),
    lambda t, x: x.split(split_size=[1, 2], dim=-1),
    lambda t, x: x.split(t.tensor(2)),
    lambda t, x: t.split(tensor=x, split_size_or_sections=1),
    lambda t, x: t.split_with_sizes(x, split_sizes=[2, 1], dim=1),
])  # fmt: skip
def test_forms_of_where_and_split(expression: Expression) -> None:
    check(expression, arrays((2, 3)), grad=False, strides=False)


def test_where_with_a_part_of_its_arguments() -> None:
    with pytest.raises(TypeError, match="condition"):
        ft.where(ft.ones(2) > 0, ft.ones(2))


@pytest.mark.parametrize("expression", [
    lambda t, x, y: t.einsum(x, [0, 1], y, [1, 2], [0, 2]),
    lambda t, x, y: t.einsum(x, [30, 1], y, [1, 2]),
    lambda t, x, y: t.einsum(x, [..., 3], y, [3, 4], [..., 4]),
    lambda t, x, y: t.einsum(x, [2, 1], [1]),
])  # fmt: skip
def test_einsum_of_lists(expression: Expression) -> None:
    check(expression, arrays((2, 3), (3, 3)), strides=False)


@pytest.mark.parametrize("arguments", [lambda t: (), lambda t: (t.ones(2),), lambda t: (t.ones(2), [52]), lambda t: (t.ones(2), ["a"])])
def test_errors_of_einsum(arguments: Expression) -> None:
    for t in (ft, torch):
        with pytest.raises((ValueError, RuntimeError, TypeError)):
            t.einsum(*arguments(t))


def test_as_strided_scatter_counts_in_the_whole_memory() -> None:
    """Of views with an offset and with gaps: values, strides, where they start, and the memory's size."""
    draw, found = random.Random(3), []
    for _ in range(40):
        start, step, n, offset, stride = draw.randint(0, 5), draw.randint(1, 3), draw.randint(1, 4), draw.choice((None, 0, 1, 7, 12)), draw.randint(1, 3)
        both = []
        for m in (ft, torch):
            x = m.arange(20.0)[start : start + 4 * step : step]
            try:
                y = m.as_strided_scatter(x, m.full((n,), -1.0), (n,), (stride,), offset)
            except RuntimeError:
                both.append("refused")
                continue
            both.append((y.tolist(), tuple(y.stride()), y.storage_offset(), y.untyped_storage().nbytes(), x.tolist()))
        found.append(both)
    assert all(a == b for a, b in found)
    assert any(a != "refused" for a, _ in found)
