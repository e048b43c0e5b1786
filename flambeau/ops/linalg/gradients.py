"""Gradients of the decompositions, by the functions of compiler/kernels/host_linalg.py.

A rule gets (context, *gradients of the results) and is written with tensor operations, so that it has gradients itself.
The formulas are those of PyTorch (torch/csrc/autograd/FunctionsManual.cpp); most are in Giles 2008, "Collected matrix
derivative results", and Townsend 2016, "Differentiating the SVD". Gradients of complex inputs are PyTorch's: conjugate Wirtinger.
"""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops.linalg.checks import identity
from flambeau.ops.primitives.host import call_host, gradient, refuse


def _shaped(x: Any) -> tuple[tuple[int, ...], Any]:
    return tuple(x._meta.shape), x._meta.dtype


def _info(x: Any) -> tuple[tuple[int, ...], Any]:
    return tuple(x._meta.shape[:-2]), dtypes.int32


def inverse_of(a: Any) -> Any:
    """The inverse as a host call; NaN where there is none."""
    return call_host("inv", (a,), _shaped(a), _info(a))[0]


def solve_with(a: Any, b: Any) -> Any:
    """x with a x = b, batches alike."""
    return call_host("solve", (a, b), _shaped(b), _info(a))[0]


def solve_triangular_with(a: Any, b: Any, upper: bool, left: bool = True, unit: bool = False) -> Any:
    """x with a x = b, or x a = b, for triangular a."""
    return call_host("solve_triangular", (a, b), _shaped(b), upper=upper, left=left, unit=unit)


def _scaled_columns(x: Any, s: Any) -> Any:
    return x * s.unsqueeze(-2)


def _add(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _diagonal(x: Any) -> Any:
    return x.diagonal(0, -2, -1)


def _without_diagonal(x: Any) -> Any:
    return x.tril(-1) + x.triu(1)


def _skew(x: Any) -> Any:
    return x - x.mH


def _as(x: Any, d: Any) -> Any:
    return x if x._meta.dtype is d else x.to(d)


# -- systems ------------------------------------------------------------------------------------------------------
@gradient("inv")
def _inv(c: Any, g: Any, _: Any) -> Any:
    x = c.output(0).mH
    return -(x @ g @ x)


@gradient("solve")
def _solve(c: Any, g: Any, _: Any) -> Any:
    g_b = solve_with(c.input(0).mH, g)
    return -(g_b @ c.output(0).mH) if c.needs(0) else None, g_b


@gradient("solve_triangular")
def _solve_triangular(c: Any, g: Any) -> Any:
    upper, left, unit = (dict(c.attrs["kwargs"])[k] for k in ("upper", "left", "unit"))
    g_b = solve_triangular_with(c.input(0).mH, g, not upper, left, unit)
    if not c.needs(0):
        return None, g_b
    x = c.output(0).mH
    g_a = -(g_b @ x) if left else -(x @ g_b)
    return (g_a.triu(int(unit)) if upper else g_a.tril(-int(unit))), g_b


@gradient("det")
def _det(c: Any, g: Any) -> Any:
    a = c.input(0)
    return g.unsqueeze(-1).unsqueeze(-1) * call_host("cofactor", (a,), _shaped(a)).conj()


@gradient("cofactor")
def _cofactor(c: Any, g: Any) -> Any:
    """Of d X^T with d = det a and X = inverse of a; only where the inverse exists."""
    x_h = inverse_of(c.input(0)).mH
    cof = c.output(0)
    g_d = (g * x_h).sum((-2, -1))
    d = (cof * c.input(0)).sum((-2, -1)) / c.shape(0)[-1]
    return _per_matrix(g_d) * cof.conj() - x_h @ (_per_matrix(d.conj()) * g.mT) @ x_h


def _per_matrix(x: Any) -> Any:
    return x.unsqueeze(-1).unsqueeze(-1)


@gradient("slogdet")
def _slogdet(c: Any, g_sign: Any, g_log: Any) -> Any:
    d = c.dtype(0)
    g = None if g_log is None else _as(g_log, d)
    if d.is_complex and g_sign is not None:
        turn = (g_sign.conj() * c.output(0)).imag
        g = _add(g, prim.make_complex(turn * 0, -turn))
    if g is None:
        return None
    return _per_matrix(g) * inverse_of(c.input(0)).mH


@gradient("matrix_exp")
def _matrix_exp(c: Any, g: Any) -> Any:
    """The upper right block of exp([[a^H, g], [0, a^H]]) (Mathias 1996)."""
    a = c.input(0).mH
    n = c.shape(0)[-1]
    upper = prim.concatenate(a, _as(g, a._meta.dtype), dim=a._meta.ndim - 1)
    lower = prim.concatenate(a * 0, a, dim=a._meta.ndim - 1)
    block = prim.concatenate(upper, lower, dim=a._meta.ndim - 2)
    return call_host("matrix_exp", (block,), _shaped(block)).narrow(-2, 0, n).narrow(-1, n, n)


def pinv_gradient(g: Any, pinv: Any, a: Any) -> Any:
    """Golub and Pereyra 1973, at constant rank."""
    m, n = a._meta.shape[-2:]
    p_h, g_h = pinv.mH, g.mH
    if m <= n:
        k = g_h @ pinv
        kp = k @ p_h
        return -(pinv @ k).mH + kp - (a @ pinv) @ kp + (p_h @ pinv) @ (g_h - k @ a)
    k = pinv @ g_h
    pk = p_h @ k
    return -(k @ pinv).mH + (g_h - a @ k) @ pinv @ p_h + pk - (pk @ pinv) @ a


@gradient("pinv")
def _pinv(c: Any, g: Any) -> Any:
    return pinv_gradient(g, c.output(0), c.input(0)), None, None


@gradient("lstsq")
def _lstsq(c: Any, g: Any, _: Any, g_s: Any) -> Any:
    a, b = c.input(0), c.input(1)
    kind = a._meta.dtype.to_real()
    zero = prim.constant(0.0, kind)
    shape = (*a._meta.shape[:-2], a._meta.shape[-1], a._meta.shape[-2])
    pinv = call_host("pinv", (a, zero, prim.constant(dict(c.attrs["kwargs"])["rcond"], kind)), (shape, a._meta.dtype))
    if g is None:
        return None, None
    return pinv_gradient(g @ b.mH, pinv, a) if c.needs(0) else None, pinv.mH @ g


# -- factorizations ---------------------------------------------------------------------------------------------------
@gradient("cholesky")
def _cholesky(c: Any, g: Any, _: Any) -> Any:
    upper = dict(c.attrs["kwargs"])["upper"]
    factor, g = (c.output(0).mH, g.mH) if upper else (c.output(0), g)
    phi = (factor.mH @ g).tril()
    phi = phi - (_diagonal(phi) / 2).diag_embed()
    middle = (phi + phi.mH) / 2
    left = solve_triangular_with(factor.mH, middle, True)
    return solve_triangular_with(factor, left, False, left=False)


@gradient("qr")
def _qr(c: Any, *gs: Any) -> Any:
    mode = dict(c.attrs["kwargs"])["mode"]
    m, n = c.shape(0)[-2:]
    if mode == "r":
        return refuse(c, RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, mode='reduced') "
            "if you are going to require gradients"
        ))  # fmt: skip
    if mode == "complete" and m > n:
        return refuse(c, RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols; use mode='reduced'"))
    g_q, g_r = gs
    q, r = c.output(0), c.output(1)
    if m >= n:
        return _qr_first(q, r, g_q, g_r)
    # A = [A1 A2], A1 = Q R1 is the square case, and R2 = Q^H A2.
    r1, r2 = r.narrow(-1, 0, m), r.narrow(-1, m, n - m)
    if g_r is None:
        first = _qr_first(q, r1, g_q, None)
        return prim.concatenate(first, r2 * 0, dim=first._meta.ndim - 1)
    g_r1, g_r2 = g_r.narrow(-1, 0, m), g_r.narrow(-1, m, n - m)
    first = _qr_first(q, r1, _add(g_q, q @ (r2 @ g_r2.mH)), g_r1)
    return prim.concatenate(first, q @ g_r2, dim=first._meta.ndim - 1)


def _qr_first(q: Any, r: Any, g_q: Any, g_r: Any) -> Any:
    """gA = Q gR + (gQ - Q Q^H gQ + Q L) R^-H, L the lower triangle of M^H - M for M = gR R^H - Q^H gQ (Walter and Lehmann 2018).

    gR does not go through R R^-1, and the last column of L is zero: so a small last element of R costs no digits.
    """
    middle = None if g_r is None else g_r @ r.mH
    if g_q is not None:
        turned = q.mH @ g_q
        middle = _add(middle, -turned)
    assert middle is not None
    lower = (middle.mH - middle).tril(-1)
    if middle._meta.dtype.is_complex:
        lower = lower + (_as(_diagonal(middle).real, middle._meta.dtype) - _diagonal(middle)).diag_embed()
    if g_q is None or q._meta.shape[-2] == q._meta.shape[-1]:  # Q Q^H gQ is gQ
        inner = solve_triangular_with(r.mH, lower, False, left=False)
        return q @ (inner if g_r is None else g_r + inner)
    beside = solve_triangular_with(r.mH, g_q + q @ (lower - turned), False, left=False)
    return beside if g_r is None else q @ g_r + beside


@gradient("lu")
def _lu(c: Any, g: Any, *_: Any) -> Any:
    """Of the packed factors, A = P L U. The blocks beside the square ones are systems with the square factors."""
    if g is None:
        return None
    packed, order = c.output(0), c.output(2)
    m, n = c.shape(0)[-2:]
    k = min(m, n)
    square = packed.narrow(-2, 0, k).narrow(-1, 0, k)
    d = packed._meta.dtype
    lower = square.tril(-1) + identity(k, d)
    upper = square.triu()
    g_square = g.narrow(-2, 0, k).narrow(-1, 0, k)
    low, high = lower.mH @ g_square.tril(-1), g_square.triu() @ upper.mH
    if n > k:
        right, g_right = packed.narrow(-1, k, n - k), g.narrow(-1, k, n - k)
        low = low - g_right @ right.mH
    if m > k:
        below, g_below = packed.narrow(-2, k, m - k), g.narrow(-2, k, m - k)
        high = high - below.mH @ g_below
    middle = low.tril(-1) + high.triu()
    inner = solve_triangular_with(upper.mH, middle, False, left=False)
    result = solve_triangular_with(lower.mH, inner, True, unit=True)
    if n > k:
        beside = solve_triangular_with(lower.mH, g_right, True, unit=True)
        result = prim.concatenate(result, beside, dim=result._meta.ndim - 1)
    if m > k:
        beneath = solve_triangular_with(upper.mH, g_below, False, left=False)
        result = prim.concatenate(result, beneath, dim=result._meta.ndim - 2)
    return permutation_matrix(order, d) @ result


def permutation_matrix(order: Any, d: Any) -> Any:
    """P with (P x)[order[i]] = x[i]: what takes the rows of L U back to those of A."""
    m = order._meta.shape[-1]
    rows = prim.iota(shape=(m, 1), dim=0)
    return prim.cast(prim.eq(rows, order.unsqueeze(-2)), dtype=d)


# -- spectra ----------------------------------------------------------------------------------------------------------
def _differences(s: Any) -> Any:
    """E[i, j] = s[j] - s[i], 1 on the diagonal."""
    e = s.unsqueeze(-2) - s.unsqueeze(-1)
    return e + identity(s._meta.shape[-1], s._meta.dtype)


@gradient("eigh")
def _eigh(c: Any, g_w: Any, g_v: Any, _: Any) -> Any:
    v = c.output(1)
    if g_v is None:
        return _scaled_columns(v, _as(g_w, v._meta.dtype)) @ v.mH
    middle = _without_diagonal((v.mH @ g_v) / _as(_differences(c.output(0)), v._meta.dtype))
    if g_w is not None:
        middle = middle + _as(g_w, v._meta.dtype).diag_embed()
    return v @ middle @ v.mH


@gradient("eig")
def _eig(c: Any, g_w: Any, g_v: Any, _: Any) -> Any:
    v = c.output(1)
    v_h = v.mH
    middle: Any = None
    if g_v is not None:
        inner = v_h @ g_v
        size = _as(_diagonal(inner).real, v._meta.dtype)  # eigenvectors have unit norm
        middle = _without_diagonal((inner - _scaled_columns(v_h @ v, size)) / _differences(c.output(0)).conj())
    if g_w is not None:
        middle = _add(middle, g_w.diag_embed())
    return solve_with(v_h, middle @ v_h)


@gradient("svd")
def _svd(c: Any, g_u: Any, g_s: Any, g_vh: Any, _: Any) -> Any:
    m, n = c.shape(0)[-2:]
    k = min(m, n)
    d = c.dtype(0)
    u, vh = c.output(0).narrow(-1, 0, k), c.output(2).narrow(-2, 0, k)
    if g_u is None and g_vh is None:
        return _scaled_columns(u, _as(g_s, d)) @ vh
    s = _as(c.output(1), d)
    if g_u is not None:
        g_u = g_u.narrow(-1, 0, k)
    if g_vh is not None:
        g_vh = g_vh.narrow(-2, 0, k)
    squares = s * s
    e = _differences(squares)
    middle: Any = None
    phase: Any = None
    if g_u is not None:
        turned = _skew(u.mH @ g_u)
        phase = _diagonal(turned)
        middle = _scaled_columns(_without_diagonal(turned / e), s)
    if g_vh is not None:
        turned = _skew(vh @ g_vh.mH)
        middle = _add(middle, s.unsqueeze(-1) * _without_diagonal(turned / e))
    if d.is_complex and phase is not None and g_vh is not None:
        middle = middle + (phase / (2 * s)).diag_embed()
    if g_s is not None:
        middle = middle + _as(g_s, d).diag_embed()
    if m > k and g_u is not None:
        over = _scaled_columns(g_u, 1 / s)
        return (u @ (middle - u.mH @ over) + over) @ vh
    if n > k and g_vh is not None:
        over = (1 / s).unsqueeze(-1) * g_vh
        return u @ ((middle - over @ vh.mH) @ vh + over)
    return u @ middle @ vh
