"""The oracle of the compiler's tests: an independent interpreter of graphs, one NumPy call a primitive.

A buffer is a flat NumPy array in the root's layout; a view is a strided window on it. bfloat16 numbers are stored as
uint16 bits, computed as float32 and rounded to nearest even after every primitive. Float functions that have no exactly
rounded answer (exp, erf, ...), sums and products of matrices are computed in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import scipy.special as special

from flambeau import dtypes
from flambeau.compiler import graph as g
from flambeau.compiler.graph import Graph, Node, Value
from flambeau.compiler.kernels import host
from flambeau.dtypes import dtype
from tests.reference_recurrent import recurrent, recurrent_gradient

Array = Any  # of NumPy: its own annotations say less than the comments here


# -- Storage and layout ---------------------------------------------------------------------------------------------


def storage_type(d: dtype) -> str:
    """The NumPy type of an element in memory."""
    return d.numpy_name or "uint16"


def to_float32(bits: Array) -> Array:
    """bfloat16 bits -> float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(x: Array) -> Array:
    """float32 -> bfloat16 bits, to nearest even; NaN stays NaN."""
    x = np.ascontiguousarray(x, np.float32)
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def strided(flat: Array, value: Value, offset: int) -> Array:
    """The window of `value` on its root's buffer."""
    d = storage_type(value.dtype)
    size = np.dtype(d).itemsize
    if value.numel == 0:
        return np.empty(value.shape, d)
    raw = flat.view(np.uint8)
    return np.ndarray(value.shape, d, raw, offset * size, [s * size for s in value.strides])


def logical(flat: Array, value: Value, offset: int = 0) -> Array:
    """The numbers of `value` (a copy); bfloat16 as float32."""
    window = strided(flat, value, offset)
    return to_float32(window.copy()) if value.dtype is dtypes.bfloat16 else window.copy()


def physical(x: Array, value: Value) -> Array:
    """A new flat buffer with the numbers x in the layout of a materialised value."""
    flat = np.zeros(value.numel, storage_type(value.dtype))
    if value.numel:
        with np.errstate(all="ignore"):
            numbers = to_bfloat16(x) if value.dtype is dtypes.bfloat16 else np.asarray(x).astype(flat.dtype)
        strided(flat, value, 0)[...] = numbers
    return flat


class Interpreter:
    """Runs one graph. `inputs`: flat arrays (bfloat16: uint16 bits)."""

    def __init__(self, graph: Graph, inputs: Sequence[Array], parameters: Sequence[Any]) -> None:
        self.graph = graph
        self.buffers: dict[int, Array] = {}
        self.numbers = dict(zip(graph.parameters, parameters, strict=True))
        for i, flat in zip(graph.inputs, inputs, strict=True):
            self.buffers[i] = flat.copy()
        for i, value in enumerate(graph.values):
            if 0 in value.shape and value.base is None:  # no node needs to make what has no elements
                self.buffers.setdefault(i, np.zeros(0, storage_type(value.dtype)))

    def read(self, i: int) -> Array:
        value = self.graph.values[i]
        if i in self.numbers:
            return np.asarray(self.numbers[i], storage_type(value.dtype))
        offset = value.offset + sum(int(self.numbers[p]) * m for p, m in value.dynamic)
        return logical(self.buffers[self.graph.root(i)], value, offset)

    def run(self) -> tuple[list[Array], list[Array]]:
        """(flat buffers of the outputs, flat buffers of all inputs after the updates)."""
        graph = self.graph
        with np.errstate(all="ignore"):
            for node in graph.nodes:
                if node.op not in g.VIEWS:
                    results = self.apply(node)
                    for o, x in zip(node.outputs, results, strict=True):
                        self.buffers[o] = physical(x, graph.values[o])
        after = [self.buffers[i] for i in graph.inputs]
        for position, i in graph.updates:
            after[position] = self.buffers[i].view(after[position].dtype)
        return [self.buffers[i] for i in graph.outputs], after

    def apply(self, node: Node) -> Sequence[Array]:
        values = self.graph.values
        if node.op == "scatter_view":
            base = self.buffers[node.inputs[0]].copy()
            dynamic = sum(int(self.numbers[p]) * m for p, m in zip(node.inputs[2:], node.attr("multipliers"), strict=True))
            d = values[node.inputs[0]].dtype
            window = Value(node.attr("shape"), d, node.attr("strides"))
            source = self.read(node.inputs[1])
            strided(base, window, node.attr("offset") + dynamic)[...] = to_bfloat16(source) if d is dtypes.bfloat16 else source
            return [logical(base, values[node.outputs[0]])]
        xs = [self.read(i) for i in node.inputs]
        kinds = [values[i].dtype for i in node.inputs]
        out = values[node.outputs[0]]
        if node.op == "cast":
            return [cast(xs[0], kinds[0], out.dtype)]
        if node.op == "random_uniform":
            return [philox(int(xs[0]), int(xs[1]), out.shape)]
        result = FUNCTIONS[node.op](node, xs, kinds[0] if kinds else out.dtype)
        return result if isinstance(result, (tuple, list)) else [result]


def run(graph: Graph, inputs: Sequence[Array], parameters: Sequence[Any] = ()) -> tuple[list[Array], list[Array]]:
    """Interpret the graph: (flat buffers of the outputs, flat buffers of all inputs afterwards)."""
    return Interpreter(graph, inputs, parameters).run()


# -- Pointwise ----------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[Node, list[Array], dtype], Any]] = {}


def _accurate(f: Callable[..., Any]) -> Callable[[Node, list[Array], dtype], Any]:
    """In float64 (complex128), rounded to the dtype of the first input."""

    def call(node: Node, xs: list[Array], d: dtype) -> Array:
        wide = [x.astype(np.complex128 if d.is_complex else np.float64) for x in xs]
        return np.asarray(f(*wide)).astype(xs[0].dtype)

    return call


def _plain(f: Callable[..., Any]) -> Callable[[Node, list[Array], dtype], Any]:
    return lambda node, xs, d: f(*xs)


def _sign(x: Array) -> Array:
    if np.iscomplexobj(x):
        size = np.abs(x)
        return np.where(size == 0, 0, x / np.where(size == 0, 1, size))
    return np.where(np.isnan(x), 0, np.sign(x)).astype(x.dtype) if x.dtype.kind == "f" else np.sign(x)


def _divide(node: Node, xs: list[Array], d: dtype) -> Array:
    return np.true_divide(*xs).astype(xs[0].dtype)


def _divide_floor(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        # PyTorch's (and CPython's) algorithm: exact remainder first, then the quotient is snapped to a whole number.
        r = np.fmod(a, b)
        q = (a - r) / b
        q = np.where((r != 0) & ((b < 0) != (r < 0)), q - 1, q)
        whole = np.floor(q)
        whole = np.where(q - whole > 0.5, whole + 1, whole)
        whole = np.where(q == 0, np.copysign(np.zeros_like(q), a / b), whole)
        return np.where(b == 0, a / b, whole).astype(a.dtype)
    return np.floor_divide(a, b)


def _divide_trunc(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    q = np.abs(a.astype(np.int64)) // np.abs(np.where(b == 0, 1, b).astype(np.int64))
    return np.where((a < 0) != (b < 0), -q, q).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        r = np.fmod(a, b)
        return np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r).astype(a.dtype)
    return np.remainder(a, b)


def _power(node: Node, xs: list[Array], d: dtype) -> Array:
    a, b = xs
    if d.category <= 1:
        a, b = np.broadcast_arrays(a, b)
        out = np.empty(a.shape, a.dtype)
        for at in np.ndindex(a.shape):
            base, exponent = int(a[at]), int(b[at])
            if exponent < 0:
                out[at] = 1 if base == 1 else (1 - 2 * (exponent % 2)) if base == -1 else 0
            else:
                bits = 8 * d.itemsize
                wrapped = pow(base, exponent, 1 << bits)
                out[at] = wrapped - (1 << bits) if d.is_signed and wrapped >> (bits - 1) else wrapped
        return out
    return _accurate(np.power)(node, xs, d)


def _shift(left: bool) -> Callable[[Node, list[Array], dtype], Any]:
    def call(node: Node, xs: list[Array], d: dtype) -> Array:
        a, n = np.broadcast_arrays(*xs)
        bits = 8 * d.itemsize
        outside = (n < 0) | (n >= bits)
        safe = np.where(outside, 0, n).astype(a.dtype)
        if left:
            return np.where(outside, 0, np.left_shift(a, safe)).astype(a.dtype)
        # PyTorch: shifting right by too much is shifting by bits - 1 (the sign stays), by bits for unsigned: 0.
        far = np.right_shift(a, np.asarray(bits - 1, a.dtype)) if d.is_signed else np.zeros_like(a)
        return np.where(outside, far, np.right_shift(a, safe)).astype(a.dtype)

    return call


def cast(x: Array, source: dtype, to: dtype) -> Array:
    """C's conversion rules; float -> integer outside the range is undefined and not tested."""
    if to is dtypes.bool_:
        return x != 0
    if source.is_complex and not to.is_complex:
        x = x.real
    if to is dtypes.bfloat16:
        return to_float32(to_bfloat16(_round_once(x)))
    return x.astype(storage_type(to))


def _round_once(x: Array) -> Array:
    """float64 or integers -> float32 with the inexact bit kept in the last place (round to odd), so that the next rounding
    is the only one."""
    if x.dtype == np.float32 or x.dtype.itemsize <= 2 or x.dtype.kind == "b":
        return x.astype(np.float32)
    near = x.astype(np.float32)
    back = near.astype(np.float64)
    wide = x.astype(np.float64)
    inexact = np.isfinite(near) & (back != wide)
    toward_zero = np.where(np.abs(back) > np.abs(wide), np.nextafter(near, np.float32(0)), near)
    bits = np.ascontiguousarray(toward_zero, np.float32).view(np.uint32)
    return np.where(inexact, bits | 1, np.ascontiguousarray(near).view(np.uint32)).astype(np.uint32).view(np.float32)


def philox(seed: int, offset: int, shape: tuple[int, ...]) -> Array:
    """Philox4x32-10 (Salmon et al. 2011): word 0 of the block keyed by seed with counter offset + index, 24 bits."""
    n = (np.arange(prod(shape), dtype=np.uint64) + np.uint64(offset % 2**64)).reshape(shape)
    c = [n & 0xFFFFFFFF, n >> np.uint64(32), np.zeros_like(n), np.zeros_like(n)]
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & np.uint64(0xFFFFFFFF),
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & np.uint64(0xFFFFFFFF)]  # fmt: skip
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return ((c[0] >> np.uint64(8)).astype(np.float64) * 2.0**-24).astype(np.float32)


def _iota(node: Node, xs: list[Array], d: dtype) -> Array:
    shape, dim = node.attr("shape"), node.attr("dim")
    if not shape:
        return np.zeros((), np.int64)
    column = np.arange(shape[dim], dtype=np.int64).reshape([-1 if i == dim else 1 for i in range(len(shape))])
    return np.broadcast_to(column, shape)


def _constant(node: Node, xs: list[Array], d: dtype) -> Array:
    to = node.attr("dtype")
    value = node.attr("value")
    return to_float32(to_bfloat16(np.float32(value))) if to is dtypes.bfloat16 else np.asarray(value).astype(to.numpy_name)


def _checked(index: Array, size: int) -> Array:
    bad = (index < -size) | (index >= size)
    if bad.any():
        raise IndexError(f"index {index[bad].flat[0]} is out of bounds for size {size}")
    return np.where(index < 0, index + size, index)


def _searchsorted(node: Node, xs: list[Array], d: dtype) -> Array:
    ordered, values = xs
    side: Any = "right" if node.attr("right") else "left"
    if ordered.ndim == 1:
        return np.searchsorted(ordered, values, side).astype(np.int64)
    out = np.empty(values.shape, np.int64)
    for at in np.ndindex(values.shape[:-1]):
        out[at] = np.searchsorted(ordered[at], values[at], side)
    return out


def _second_of_equal(f: Callable[..., Any]) -> Callable[..., Any]:
    """Of two zeros the second, whatever their signs: NumPy's functions give that in all types but float16."""
    return lambda a, b: f(a.astype(np.float32), b.astype(np.float32)).astype(np.float16) if a.dtype == b.dtype == np.float16 else f(a, b)


_EXACT: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "abs": np.abs, "sgn": _sign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.round, "sqrt": np.sqrt, "reciprocal": lambda x: (1 / x).astype(x.dtype), "bitwise_not": np.invert,
    "conj_physical": np.conj, "isnan": np.isnan, "real_part": np.real, "imag_part": np.imag, "add": np.add,
    "sub": np.subtract, "mul": np.multiply, "div_floor": _divide_floor, "div_trunc": _divide_trunc,
    "remainder": _remainder, "fmod": np.fmod, "maximum": _second_of_equal(np.maximum), "minimum": _second_of_equal(np.minimum), "fmax": np.fmax,
    "fmin": np.fmin, "copysign": np.copysign, "nextafter": np.nextafter, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "where": np.where,
    "make_complex": lambda a, b: a + 1j * b, "copy": lambda x: x,
}  # fmt: skip
_ROUNDED: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "erf": special.erf, "exp_weight": np.exp,
    "erf_plus_one": lambda x: special.erfc(-x), "erfc": special.erfc, "erfinv": special.erfinv,
    "lgamma": special.gammaln, "digamma": special.digamma, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "atan2": np.arctan2, "hypot": np.hypot,
}  # fmt: skip
FUNCTIONS |= {name: _plain(f) for name, f in _EXACT.items()} | {name: _accurate(f) for name, f in _ROUNDED.items()}
FUNCTIONS |= {
    "div": _divide, "pow": _power, "shift_left": _shift(True), "shift_right": _shift(False), "iota": _iota,
    "constant": _constant, "searchsorted": _searchsorted,
    "take": lambda node, xs, d: xs[0][_checked(xs[1], xs[0].shape[0])],
}  # fmt: skip


# -- Reductions, scans ----------------------------------------------------------------------------------------------


def _wide(x: Array) -> Array:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) if x.dtype.kind in "fc" else x


def _reduce(node: Node, xs: list[Array], d: dtype) -> Array:
    (x,) = xs
    dims = tuple(node.attr("dims"))
    name = node.op
    if name in ("sum", "prod"):
        f = np.sum if name == "sum" else np.prod
        return np.asarray(f(_wide(x), axis=dims, dtype=_wide(x).dtype)).astype(x.dtype)
    if name in ("amax", "amin"):
        if d is dtypes.bool_:
            return np.asarray((np.any if name == "amax" else np.all)(x, axis=dims))
        return np.asarray((np.amax if name == "amax" else np.amin)(x, axis=dims))
    if x.dtype.kind == "f" and x.size:
        nan = np.isnan(x)
        first = np.argmax(nan, axis=dims[0])
        plain = (np.argmax if name == "argmax" else np.argmin)(np.where(nan, 0, x), axis=dims[0])
        return np.where(nan.any(axis=dims[0]), first, plain).astype(np.int64)
    return np.asarray((np.argmax if name == "argmax" else np.argmin)(x, axis=dims[0])).astype(np.int64)


def _var_mean(node: Node, xs: list[Array], d: dtype) -> tuple[Array, Array]:
    x = xs[0].astype(np.float64)
    dims = tuple(node.attr("dims"))
    n = prod(x.shape[i] for i in dims)
    mean = x.mean(axis=dims, keepdims=True)
    variance = ((x - mean) ** 2).sum(axis=dims) / np.float64(max(0, n - node.attr("correction")))
    return np.asarray(variance).astype(xs[0].dtype), np.asarray(mean.squeeze(dims)).astype(xs[0].dtype)


def _scan(node: Node, xs: list[Array], d: dtype) -> Any:
    (x,) = xs
    dim = node.attr("dim")
    if node.op == "cumsum":
        return np.cumsum(_wide(x), axis=dim, dtype=_wide(x).dtype).astype(x.dtype)
    if node.op == "cumprod":
        return np.cumprod(_wide(x), axis=dim, dtype=_wide(x).dtype).astype(x.dtype)
    if node.op == "logcumsumexp":
        return np.logaddexp.accumulate(_wide(x), axis=dim).astype(x.dtype)
    values, indices = x.copy(), np.zeros(x.shape, np.int64)
    v, at = np.moveaxis(values, dim, 0), np.moveaxis(indices, dim, 0)
    larger = np.greater_equal if node.op == "cummax" else np.less_equal
    for i in range(1, len(v)):
        new = larger(v[i], v[i - 1]) | (v[i] != v[i])
        new &= ~((v[i - 1] != v[i - 1]) & (v[i] == v[i]))
        at[i] = np.where(new, i, at[i - 1])
        v[i] = np.where(new, v[i], v[i - 1])
    return values, indices


FUNCTIONS |= dict.fromkeys(g.REDUCE, _reduce) | dict.fromkeys(g.SCAN, _scan) | {"var_mean": _var_mean}


# -- Dense algebra, windows -------------------------------------------------------------------------------------------


def _matmul(node: Node, xs: list[Array], d: dtype) -> Array:
    return np.matmul(_wide(xs[0]), _wide(xs[1])).astype(np.int32 if dict(node.attrs).get("wide") else xs[0].dtype)


def _weights(node: Node, q: Array, k: Array, rest: Sequence[Array]) -> tuple[Array, Array]:
    """Masked scores of attention, and what dropout multiplies the weights by."""
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * node.attr("scale")
    if node.attr("masked"):
        scores = np.where(rest[0], scores, -np.inf) if rest[0].dtype == np.bool_ else scores + rest[0]
    if node.attr("causal"):
        length, source = scores.shape[-2:]
        scores = np.where(np.arange(length)[:, None] >= np.arange(source), scores, -np.inf)
    p = node.attr("dropout")
    if p == 0.0:
        return scores, np.ones(())
    return scores, rest[-1] / (1.0 - p) if p < 1.0 else np.zeros(scores.shape)


def _attention(node: Node, xs: list[Array], d: dtype) -> tuple[Array, Array]:
    q, k, v = (_wide(x) for x in xs[:3])
    scores, kept = _weights(node, q, k, xs[3:])
    highest = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = e.sum(-1)
    lse = np.where(total == 0, np.inf, highest[..., 0] + np.log(total))
    weights = e / np.where(total == 0, 1, total)[..., None]
    return np.matmul(weights * kept, v).astype(xs[0].dtype), lse


def _attention_gradient(node: Node, xs: list[Array], d: dtype) -> tuple[Array, ...]:
    g, q, k, v, lse, delta = (_wide(x) for x in xs[:6])
    scores, kept = _weights(node, q, k, xs[6:])
    weights = np.exp(scores - lse[..., None])
    slope = weights * (np.matmul(g, np.swapaxes(v, -1, -2)) * kept - delta[..., None])
    results = (
        np.matmul(slope, k) * node.attr("scale"), np.matmul(np.swapaxes(slope, -1, -2), q) * node.attr("scale"),
        np.matmul(np.swapaxes(weights * kept, -1, -2), g),
    )  # fmt: skip
    return tuple(x.astype(xs[0].dtype) for x in results)


def _taps(node: Node, kernel: tuple[int, int], out: tuple[int, int]) -> Any:
    """For every kernel position: its index, and the slices of the padded input that it meets."""
    (sh, sw), (dh, dw) = node.attr("stride"), node.attr("dilation")
    for i, j in product(range(kernel[0]), range(kernel[1])):
        rows = slice(i * dh, i * dh + (out[0] - 1) * sh + 1, sh)
        columns = slice(j * dw, j * dw + (out[1] - 1) * sw + 1, sw)
        yield i, j, rows, columns


def _padded(x: Array, node: Node, fill: Any = 0, extra: int = 0) -> Array:
    ph, pw = node.attr("padding")
    return np.pad(x, ((0, 0), (0, 0), (ph, ph + extra), (pw, pw + extra)), constant_values=fill)


def _convolution(node: Node, xs: list[Array], d: dtype) -> Array:
    """All three products: y[n,o] += x[n,i] w[o,i] over the taps, in float64."""
    groups = node.attr("groups")
    if node.op == "convolution":
        x, w = (_wide(a) for a in xs)
        y = None
    elif node.op == "convolution_input_gradient":
        y, w = (_wide(a) for a in xs)
        x = np.zeros(node.attr("shape"), y.dtype)
    else:
        y, x = (_wide(a) for a in xs)
        w = np.zeros(node.attr("shape"), y.dtype)
    (ph, pw), (sh, sw), (dh, dw) = (node.attr(k) for k in ("padding", "stride", "dilation"))
    n, c, h, width = x.shape
    o, _, kh, kw = w.shape
    oh, ow = (h + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (width + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    p = _padded(x, node).reshape(n, groups, c // groups, h + 2 * ph, width + 2 * pw)
    ws = w.reshape(groups, o // groups, c // groups, kh, kw)
    result = np.zeros((n, groups, o // groups, oh, ow), w.dtype) if y is None else y.reshape(n, groups, o // groups, oh, ow)
    wg = np.zeros_like(ws)
    pg = np.zeros_like(p)
    for i, j, rows, columns in _taps(node, (kh, kw), (oh, ow)):
        if node.op == "convolution":
            result += np.einsum("ngchw,goc->ngohw", p[..., rows, columns], ws[..., i, j])
        elif node.op == "convolution_input_gradient":
            pg[..., rows, columns] += np.einsum("ngohw,goc->ngchw", result, ws[..., i, j])
        else:
            wg[..., i, j] = np.einsum("ngohw,ngchw->goc", result, p[..., rows, columns])
    if node.op == "convolution":
        out = result.reshape(n, o, oh, ow)
    elif node.op == "convolution_input_gradient":
        out = pg[..., ph : ph + h, pw : pw + width].reshape(n, c, h, width)
    else:
        out = wg.reshape(w.shape)
    return out.astype(xs[0].dtype)


def _windows(node: Node, height: int, width: int, at: tuple[int, int]) -> tuple[list[int], list[int], int]:
    """Rows and columns of x inside the window at an output position; how many taps lie inside the padded image."""
    picked, counted = [], 1
    for d, (size, i) in enumerate(zip((height, width), at, strict=True)):
        k, s, p, dil = (node.attr(name)[d] for name in ("kernel", "stride", "padding", "dilation"))
        taps = [i * s - p + t * dil for t in range(k)]
        picked.append([t for t in taps if 0 <= t < size])
        counted *= sum(1 for t in taps if t < size + p)
    return picked[0], picked[1], counted


def _pool(node: Node, xs: list[Array], d: dtype) -> Any:
    shape = tuple(node.attr("shape"))
    x = xs[0]
    if node.op == "max_pool":
        h, w = x.shape[2:]
        values, indices = np.zeros(shape, x.dtype), np.zeros(shape, np.int64)
        for at in np.ndindex(shape[2:]):
            rows, columns, _ = _windows(node, h, w, (at[0], at[1]))
            flat = np.array([r * w + c for r in rows for c in columns])
            if not flat.size:  # all of the window is padding
                kind = x.dtype.kind
                values[:, :, at[0], at[1]] = -np.inf if kind == "f" else False if kind == "b" else np.iinfo(x.dtype).min
                indices[:, :, at[0], at[1]] = -1
                continue
            window = x.reshape(*x.shape[:2], h * w)[..., flat]
            best = np.argmax(np.where(np.isnan(window), np.inf, window) if x.dtype.kind == "f" else window, axis=-1)
            if x.dtype.kind == "f":
                nan = np.isnan(window)
                last = window.shape[-1] - 1 - np.argmax(nan[..., ::-1], axis=-1)  # a later NaN wins, as in PyTorch
                best = np.where(nan.any(-1), last, best)
            values[:, :, at[0], at[1]] = np.take_along_axis(window, best[..., None], -1)[..., 0]
            indices[:, :, at[0], at[1]] = flat[best]
        return values, indices
    out = np.zeros(shape, np.float64)
    if node.op == "max_pool_gradient":
        flat_out = out.reshape(*shape[:2], -1)
        grad, index = x.reshape(*shape[:2], -1), xs[1].reshape(*shape[:2], -1)
        for n, c in np.ndindex(shape[:2]):
            there = index[n, c] >= 0
            np.add.at(flat_out[n, c], index[n, c][there], grad[n, c][there].astype(np.float64))
        return out.astype(x.dtype)
    forward = node.op == "average_pool"
    h, w = x.shape[2:] if forward else shape[2:]
    for at in np.ndindex(shape[2:] if forward else x.shape[2:]):
        rows, columns, counted = _windows(node, h, w, (at[0], at[1]))
        inside = len(rows) * len(columns)
        divisor = node.attr("divisor") or (counted if node.attr("count_include_pad") else inside)
        window = np.ix_(range(shape[0]), range(shape[1]), rows, columns)
        if forward:
            out[:, :, at[0], at[1]] = x[window].astype(np.float64).sum(axis=(2, 3)) / divisor
        else:
            out[window] += (x[:, :, at[0], at[1]].astype(np.float64) / divisor)[:, :, None, None]
    return out.astype(x.dtype)


def _coded(node: Node, xs: list[Array], d: dtype) -> Array:
    x, codes, scales, zeros = xs
    bits, group = node.attr("code_bits"), node.attr("group")
    rows, count = codes.shape[0], x.shape[1]
    if bits == 4:
        blocks = codes.reshape(rows, -1, 1, min(group, g.CODED_BLOCK) // 2)
        codes = np.concatenate([blocks & 15, blocks >> 4], 2)
    weight = (codes.reshape(rows, -1, group).astype(np.float64) - zeros[..., None]) * scales[..., None]
    return (x.astype(np.float64) @ weight.reshape(rows, count).T).astype(np.float32)


def _two_of_four(node: Node, xs: list[Array], d: dtype) -> Array:
    x, values, places = xs
    there = np.unpackbits(places, axis=1, bitorder="little").astype(bool)
    weight = np.zeros(there.shape)
    weight[there] = values.astype(np.float64).reshape(-1)
    return (x.astype(np.float64) @ weight.T).astype(np.float32)


_CONVOLUTIONS = [op for op in g.CONTRACT if op != "matmul"]
_OWN = {
    "matmul": _matmul, "attention": _attention, "attention_gradient": _attention_gradient, "recurrent": recurrent,
    "recurrent_gradient": recurrent_gradient, "coded_matmul": _coded, "two_of_four_matmul": _two_of_four,
}  # fmt: skip
FUNCTIONS |= _OWN | dict.fromkeys(_CONVOLUTIONS, _convolution) | dict.fromkeys(g.POOL, _pool)


# -- Movement by index ------------------------------------------------------------------------------------------------


def _store(out: Array, at: Any, source: Array, mode: str) -> None:
    """out[at] = source for the positions in order; `at` may repeat."""
    if mode == "set":
        out[at] = source
        return
    work = out.astype(np.float64) if out.dtype == np.float16 or (out.dtype.kind == "f" and mode in ("add", "prod")) else out
    f = {"add": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[mode]
    if work.dtype == bool:
        f = {"add": np.logical_or, "prod": np.logical_and, "amax": np.logical_or, "amin": np.logical_and}[mode]
    f.at(work, at, source.astype(work.dtype))
    out[...] = work.astype(out.dtype)


def _put_rows(node: Node, xs: list[Array], d: dtype) -> Array:
    x, index, source = xs
    dim = node.attr("dim")
    out = x.copy()
    rows = _checked(index, x.shape[dim]).reshape(-1)
    spread = source.reshape(*x.shape[:dim], rows.size, *x.shape[dim + 1 :])
    _store(np.moveaxis(out, dim, 0), rows, np.moveaxis(spread, dim, 0), node.attr("mode"))
    return out


def _scatter(node: Node, xs: list[Array], d: dtype) -> Array:
    x, index, source = xs
    dim = node.attr("dim")
    out = x.copy()
    at = list(np.indices(index.shape))
    at[dim] = _checked(index, x.shape[dim])
    _store(out, tuple(a.reshape(-1) for a in at), source.reshape(-1), node.attr("mode"))
    return out


def _put(node: Node, xs: list[Array], d: dtype) -> Array:
    out = xs[0].copy()
    _store(out, _checked(xs[1], out.shape[0]).reshape(-1), xs[2].reshape(-1), node.attr("mode"))
    return out


def _gather(node: Node, xs: list[Array], d: dtype) -> Array:
    x, index = xs
    dim = node.attr("dim")
    at = list(np.indices(index.shape))
    at[dim] = _checked(index, x.shape[dim])
    return x[tuple(at)]


def _order(x: Array, dim: int, descending: bool) -> Array:
    """Stable order; NaN is the largest."""
    if descending:
        flipped = np.flip(x, dim)
        order = np.flip(np.argsort(flipped, axis=dim, kind="stable"), dim)
        return (x.shape[dim] - 1 - order).astype(np.int64)
    return np.argsort(x, axis=dim, kind="stable").astype(np.int64)


def _sort(node: Node, xs: list[Array], d: dtype) -> tuple[Array, Array]:
    (x,) = xs
    if x.ndim == 0:
        return x, np.zeros((), np.int64)
    dim = node.attr("dim")
    order = _order(x, dim, node.attr("descending") if node.op == "sort" else node.attr("largest"))
    if node.op == "topk":
        order = np.take(order, range(node.attr("k")), axis=dim)
    return np.take_along_axis(x, order, dim), order


def _fourier(node: Node, xs: list[Array], d: dtype) -> Array:
    (x,) = xs
    dim, kind, size, inverse = (node.attr(name) for name in ("dim", "kind", "size", "inverse"))
    wide = x.astype(np.float64 if x.dtype.kind == "f" else np.complex128)
    if kind == "real":
        found = np.fft.rfft(wide, axis=dim)
    elif kind == "hermitian":
        found = np.fft.irfft(wide, size, axis=dim, norm="forward")
    else:
        found = np.fft.ifft(wide, axis=dim, norm="forward") if inverse else np.fft.fft(wide, axis=dim)
    return (found * node.attr("scale")).astype((d.to_real() if kind == "hermitian" else d.to_complex()).numpy_name)


def _host(node: Node, xs: list[Array], d: dtype) -> Any:
    return host.FUNCTIONS[node.attr("function")](*xs, **dict(node.attr("kwargs")))


FUNCTIONS |= {
    "concatenate": lambda node, xs, d: np.concatenate(xs, axis=node.attr("dim")),
    "take_rows": lambda node, xs, d: np.take(xs[0], _checked(xs[1], xs[0].shape[node.attr("dim")]), axis=node.attr("dim")),
    "put_rows": _put_rows, "gather": _gather, "scatter": _scatter, "put": _put, "sort": _sort, "topk": _sort,
    "fourier": _fourier, "host_call": _host,
}  # fmt: skip
