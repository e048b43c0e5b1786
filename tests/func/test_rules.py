"""Every batching rule and every forward rule, over the expressions of cases.py: vmap against a loop, jvp against vjp (<u, J v> = <J^T u, v>)."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as ft
from flambeau.compiler import graph
from flambeau.func import jvp, vjp, vmap
from flambeau.ops.primitive import PRIMITIVES
from flambeau.ops.primitives import batching, forward
from tests.func.cases import cases
from tests.ops.oracle import arrays, flat

CASES = cases()
SAMPLES = 2
# Results that are no floating numbers have no derivative, and `//` is refused one, as in PyTorch.
WITHOUT_DERIVATIVE = (
    "isnan() isinf() isfinite() isreal() signbit() logical_not() eq(,) ne(,) lt(,) le(,) gt(,) ge(,) logical_and(,) logical_or(,) logical_xor(,) arg "
    "floor_divide(,) "
    "searching any+all"
).split()


@pytest.mark.parametrize("name", CASES)
def test_vmap_is_a_loop(name: str) -> None:
    expression, shapes = CASES[name]
    stacked = [ft.tensor(np.stack(samples)) for samples in zip(*[arrays(*shapes, seed=s) for s in range(SAMPLES)], strict=True)]
    count = len(stacked)

    def function(*xs):
        return tuple(flat(expression(ft, *xs)))

    patterns = [(0,) * count] + ([(None,) * (count - 1) + (0,)] if count > 1 else [])
    for dims in patterns:
        given = [x if d == 0 else x[0] for x, d in zip(stacked, dims, strict=True)]
        got = vmap(function, dims)(*given)
        wanted = [function(*[x[i].clone() if d == 0 else x for x, d in zip(given, dims, strict=True)]) for i in range(SAMPLES)]
        for k, g in enumerate(got):
            assert g.dtype is wanted[0][k].dtype
            np.testing.assert_allclose(g.numpy(), np.stack([w[k].numpy() for w in wanted]), rtol=1e-9, atol=1e-9, err_msg=f"result {k}, {dims}")


@pytest.mark.parametrize("name", [n for n in CASES if n.replace(" ", "+") not in WITHOUT_DERIVATIVE])
def test_jvp_is_the_transpose_of_vjp(name: str) -> None:
    expression, shapes = CASES[name]
    primals = [ft.tensor(a) for a in arrays(*shapes)]
    tangents = [ft.tensor(a) for a in arrays(*shapes, seed=7)]

    def function(*xs):
        return tuple([t for t in flat(expression(ft, *xs)) if t.is_floating_point()])

    outputs, moved = jvp(function, tuple(primals), tuple(tangents))
    plain, pull_back = vjp(function, *primals)
    for a, b in zip(outputs, plain, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-12)
    weights = tuple([ft.tensor(np.random.default_rng(k).normal(size=tuple(o.shape))) for k, o in enumerate(outputs)])
    found = pull_back(weights)
    left = sum([float((t * w).sum()) for t, w in zip(moved, weights, strict=True)])
    right = sum([float((g * v).sum()) for g, v in zip(found, tangents, strict=True)])
    assert left == pytest.approx(right, rel=1e-7, abs=1e-7, nan_ok=True)


def test_every_primitive_has_its_rules() -> None:
    assert set(PRIMITIVES) == set(graph.PRIMITIVES)
    assert batching.without_rule() == []
    for name in forward.RULES:
        assert PRIMITIVES[name].gradient is not None, f"{name} has a forward rule, but no gradient"
