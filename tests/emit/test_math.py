"""Our vector mathematics, sampled: error bounds, special values, and the same bits for every number of lanes.

The bounds of float32 are checked over all inputs by exhaustive.py; here a sample keeps them honest in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.runtime.target import Target
from tests.emit.accuracy import BOUND_BINARY, BOUND_FLOAT32, BOUND_FLOAT64, REFERENCE
from tests.emit.native import WIDTHS, apply
from tests.emit.samples import kind, rounded, same, sample, ulps, widen

Array = np.ndarray[Any, Any]
INF, NAN = np.inf, np.nan
LONG_DOUBLE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
# C's results at the edges (C23, annex F), as (input, result).
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN)],
    "exp2": [(3.0, 8.0), (-1.0, 0.5), (INF, INF), (-INF, 0.0), (NAN, NAN)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN)],
    "log": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (-INF, NAN), (NAN, NAN)],
    "log2": [(1.0, 0.0), (8.0, 3.0), (0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN)],
    "log10": [(1.0, 0.0), (1000.0, 3.0), (0.0, -INF), (INF, INF), (-1.0, NAN), (NAN, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-2.0, NAN), (NAN, NAN)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "cos": [(0.0, 1.0), (INF, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (NAN, NAN)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (-INF, NAN), (NAN, NAN)],
    "acos": [(1.0, 0.0), (1.5, NAN), (NAN, NAN)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (NAN, NAN)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "cosh": [(0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-3.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)],
    "erfc": [(0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN)],
    "erfinv": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (NAN, NAN)],
    "sigmoid": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN)],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (0.0, INF), (-0.0, INF), (-3.0, INF), (INF, INF), (-INF, INF), (NAN, NAN)],
    "digamma": [(0.0, -INF), (-0.0, INF), (-2.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
}


@pytest.mark.parametrize("op", sorted(REFERENCE))
def test_float32_errors_and_widths(op: str) -> None:
    x = np.arange(0, 2**32, 40009, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([x, np.random.default_rng(1).standard_normal(20000).astype(np.float32)])
    with np.errstate(all="ignore"):
        error = ulps(apply(op, dtypes.float32, x), REFERENCE[op](x.astype(np.float64)))
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND_FLOAT32[op], f"{op}({x[worst]!r}): {error[worst]:.3g} ulp"
    results = [apply(op, dtypes.float32, x[::50], width=w) for w in WIDTHS]
    assert all(same(r, results[0]).all() for r in results)


def double_samples(op: str) -> Array:
    random = np.random.default_rng(2)
    n = 4000
    if op in ("asin", "acos", "atanh"):
        return np.concatenate([random.uniform(-1, 1, n), 1 - np.exp(random.uniform(-36, -1, n))])
    if op == "acosh":
        return np.concatenate([1 + np.exp(random.uniform(-36, 30, n)), np.exp(random.uniform(0.1, 700, n))])
    spread = np.exp(random.uniform(-700, 700, n)) * random.choice([-1, 1], n)
    return np.concatenate([random.standard_normal(n) * 3, random.uniform(-30, 30, n), random.uniform(0.4, 3, n), spread])


@pytest.mark.parametrize("op", sorted(LONG_DOUBLE))
def test_float64_errors_and_widths(op: str) -> None:
    x = double_samples(op)
    got = apply(op, dtypes.float64, x, width=8)
    with np.errstate(all="ignore"):
        error = ulps(got, LONG_DOUBLE[op](x.astype(np.longdouble)))
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND_FLOAT64[op], f"{op}({x[worst]!r}): {error[worst]:.3g} ulp, got {got[worst]!r}"
    assert same(apply(op, dtypes.float64, x[::40], width=1), got[::40]).all()


@pytest.mark.parametrize("op", ("erf", "erfc", "erfinv"))
def test_error_functions_in_double(op: str) -> None:
    import mpmath

    random = np.random.default_rng(3)
    x = random.uniform(-1, 1, 300) if op == "erfinv" else random.uniform(-6, 9, 300)
    with mpmath.workdps(30):
        wanted = np.array([np.longdouble(mpmath.nstr(getattr(mpmath, op)(mpmath.mpf(float(v))), 25)) for v in x])
    assert ulps(apply(op, dtypes.float64, x), wanted).max() <= BOUND_FLOAT64[op]


@pytest.mark.parametrize("op", ("lgamma", "digamma"))
def test_gamma_in_double(op: str) -> None:
    """Near roots the error is absolute: a few places of the terms that cancel there."""
    import mpmath

    x = np.concatenate([np.random.default_rng(4).uniform(-15, 30, 300), np.array([0.01, 1e-9, 1e5, 1e300])])
    rule = mpmath.digamma if op == "digamma" else (lambda v: mpmath.log(abs(mpmath.gamma(v))) if v < 1e6 else v)
    with mpmath.workdps(30):
        wanted = np.array([float(rule(mpmath.mpf(float(v)))) for v in x])
    if op == "lgamma":
        wanted[-1] = 1e300 * (np.log(1e300) - 1)
    got = apply(op, dtypes.float64, x)
    assert (np.abs(got - wanted) <= 1e-14 * np.maximum(np.abs(wanted), 1)).all()


@pytest.mark.parametrize("d", (dtypes.float32, dtypes.float64), ids=lambda d: d.name)
@pytest.mark.parametrize("op", sorted(SPECIAL))
def test_special_values(op: str, d: dtypes.dtype) -> None:
    x = np.array([pair[0] for pair in SPECIAL[op]], kind(d))
    wanted = np.array([pair[1] for pair in SPECIAL[op]], kind(d))
    got = apply(op, d, x)
    assert same(got, wanted).all(), f"{op}{x.tolist()}: got {got.tolist()}, wanted {wanted.tolist()}"


@pytest.mark.parametrize("d", (dtypes.float32, dtypes.float64), ids=lambda d: d.name)
@pytest.mark.parametrize("op", ("sin", "cos", "tan"))
def test_huge_arguments_are_reduced_with_all_bits(op: str, d: dtypes.dtype) -> None:
    largest = float(np.finfo(kind(d)).max)
    x = np.array([largest, -largest, 2.0**28, 2.0**100, -(2.0**127), 1e22, 6381956970095103.0 * 2.0**60], kind(d))
    with np.errstate(all="ignore"):
        error = ulps(apply(op, d, x, width=4), LONG_DOUBLE[op](x.astype(np.longdouble)))
    assert error.max() <= 1


BINARY: dict[str, Callable[[Array, Array], Array]] = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}


@pytest.mark.parametrize("d", (dtypes.float32, dtypes.float64), ids=lambda d: d.name)
@pytest.mark.parametrize("op", sorted(BINARY))
def test_binary_errors_and_edges(op: str, d: dtypes.dtype) -> None:
    random = np.random.default_rng(5)
    n = 5000
    a = random.standard_normal(n) * np.exp(random.standard_normal(n) * 4)
    c = random.standard_normal(n) * np.exp(random.standard_normal(n) * 2)
    if op == "pow":
        a[: n // 2] = 1 + random.standard_normal(n // 2) * 1e-3
        c[: n // 2] *= 1e4
        c[n // 2 :: 2] = np.rint(c[n // 2 :: 2])
    edges = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1e30, -1e30, 1e-30]
    a = np.concatenate([np.repeat(edges, len(edges)), a]).astype(kind(d))
    c = np.concatenate([np.tile(edges, len(edges)), c]).astype(kind(d))
    with np.errstate(all="ignore"):
        wanted = BINARY[op](a.astype(np.longdouble), c.astype(np.longdouble))
        got = apply(op, d, a, c)
        error = ulps(got, wanted)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND_BINARY[d.name][op], f"{op}({a[worst]!r}, {c[worst]!r}) = {got[worst]!r}"
    zeros = (got == 0) & (wanted == 0)
    assert (np.signbit(got) == np.signbit(wanted))[zeros].all()


@pytest.mark.parametrize("d", (dtypes.float16, dtypes.bfloat16), ids=lambda d: d.name)
def test_narrow_types_round_the_float_result(d: dtypes.dtype) -> None:
    x = sample(d, 2000, 6)
    for op in ("exp", "tanh", "erf", "log", "sigmoid"):
        single = apply(op, dtypes.float32, widen(d, x).astype(np.float32))
        assert same(widen(d, apply(op, d, x)), widen(d, rounded(d, single))).all()


def test_scaling_by_two_products_or_by_one_instruction_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.compiler.emit import math_exp

    x = np.concatenate([np.linspace(-110, 95, 20011), np.array([INF, -INF, NAN])]).astype(np.float32)
    results = []
    for one in (False, True):
        if one and not math_exp._scales_in_one_instruction(Target.host()):
            pytest.skip("this machine has no such instruction, or LLVM does not know it")
        with monkeypatch.context() as patch:
            patch.setattr(math_exp, "_scales_in_one_instruction", lambda target, one=one: one)
            results.append([apply(op, dtypes.float32, x) for op in ("exp", "exp2", "sigmoid")])
            results[-1].append(apply("exp", dtypes.float64, x.astype(np.float64) * 8))
    for two_products, one_instruction in zip(*results, strict=True):
        assert same(two_products, one_instruction).all()


def test_one_plus_erf_is_exact_to_a_place_of_one() -> None:
    """Its error against float64 is at most 1.5 places of 1, wherever it is; NaN and infinities as the sum has them."""
    from scipy import special

    x = np.concatenate([np.linspace(-6, 6, 1_000_001), [0.0, 1e-30, -1e-30, 3.92, -3.92]]).astype(np.float32)
    got = apply("erf_plus_one", dtypes.float32, x)
    assert np.abs(got - special.erfc(-x.astype(np.float64))).max() <= 1.6 * 2.0**-23
    assert same(apply("erf_plus_one", dtypes.float32, x[::50], width=1), got[::50]).all()
    odd = np.array([INF, -INF, NAN, 0.0, 5.0, -5.0], np.float32)
    assert same(apply("erf_plus_one", dtypes.float32, odd), np.array([2, 0, NAN, 1, 2, 0], np.float32)).all()
