"""Every primitive of the graph, compiled, against the reference interpreter: dtypes, strides, empty and 0-d values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.compiler import graph as g
from flambeau.dtypes import dtype
from tests.graphs import BOOL, FLOAT32, FLOAT64, INT64, GraphBuilder
from tests.native import check_graph
from tests.reference import to_bfloat16

FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
INTEGERS = (dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
COMPLEX = (dtypes.complex64, dtypes.complex128)
# Units in the last place of the dtype, times a few: what a function that is not exactly rounded may be off.
TOLERANCE = {"float32": 2e-6, "float64": 2e-14, "float16": 2e-3, "bfloat16": 2e-2, "complex64": 5e-6, "complex128": 1e-13}
covered: set[str] = set()


def numbers(n: int, d: dtype, seed: int = 0, low: float = -3, high: float = 3) -> Any:
    """n numbers of dtype d between low and high."""
    generator = np.random.default_rng(seed)
    if d is BOOL:
        return generator.integers(0, 2, n).astype(bool)
    if d.category == 1:
        first = int(low) if d.is_signed else max(int(low), 0)
        return generator.integers(first, int(high) + 1, n).astype(d.numpy_name)
    x = generator.uniform(low, high, n)
    if d.is_complex:
        return (x + 1j * generator.uniform(low, high, n)).astype(d.numpy_name)
    return to_bfloat16(x) if d is dtypes.bfloat16 else x.astype(d.numpy_name)


class Case(GraphBuilder):
    """A graph with its data."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[Any] = []
        self.numbers: list[Any] = []

    def tensor(self, shape: tuple[int, ...], d: dtype, low: float = -3, high: float = 3, **layout: Any) -> int:
        x = self.input(shape, d, **layout)
        root = self.graph.values[self.graph.root(x)]
        self.data.append(numbers(root.numel, d, len(self.data), low, high))
        return x

    def given(self, x: Any, d: dtype) -> int:
        """A tensor with these numbers."""
        x = np.asarray(x, d.numpy_name)
        i = self.input(x.shape, d)
        self.data.append(np.ascontiguousarray(x).reshape(-1))
        return i

    def number(self, x: Any) -> int:
        self.numbers.append(x)
        return self.parameter({bool: BOOL, int: INT64, float: FLOAT64}[type(x)])

    def check(self, *results: int, tolerance: float = 0.0) -> Any:
        covered.update(node.op for node in self.graph.nodes)
        self.output(*results)
        return check_graph(self.graph, self.data, self.numbers, tolerance=tolerance)


def close(d: dtype, factor: float = 1) -> float:
    return factor * TOLERANCE.get(d.name, 0.0)


# -- Pointwise ----------------------------------------------------------------------------------------------------

DOMAIN = {
    "erf_plus_one": (-0.5, 3),  # below, its small results have few exact places
    "log": (0.01, 3), "log2": (0.01, 3), "log10": (0.01, 3), "log1p": (-0.9, 3), "sqrt": (0, 3), "rsqrt": (0.01, 3),
    "asin": (-1, 1), "acos": (-1, 1), "atanh": (-0.9, 0.9), "acosh": (1, 3), "erfinv": (-0.9, 0.9), "lgamma": (0.1, 9),
    "digamma": (0.1, 9), "reciprocal": (0.1, 3),
}  # fmt: skip
EXACT = frozenset(("neg", "abs", "sgn", "floor", "ceil", "trunc", "round", "sqrt", "reciprocal"))


def layouts(c: Case, d: dtype, low: float, high: float) -> list[int]:
    """The same kind of numbers as a long vector, a transposed matrix, a strided slice, a scalar and nothing."""
    return [
        c.tensor((133,), d, low, high), c.permute(c.tensor((7, 19), d, low, high), 1, 0),
        c.slice(c.tensor((5, 22), d, low, high), 1, 1, 22, 3), c.tensor((), d, low, high), c.tensor((0, 3), d, low, high),
    ]  # fmt: skip


@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", sorted(g.UNARY - {"bitwise_not", "conj_physical"}))
def test_float_functions(op: str, d: dtype) -> None:
    c = Case()
    c.check(*[c.op(op, x) for x in layouts(c, d, *DOMAIN.get(op, (-3, 3)))], tolerance=0 if op in EXACT else close(d))


@pytest.mark.parametrize("d", COMPLEX, ids=lambda d: d.name)
@pytest.mark.parametrize("op", ["neg", "abs", "exp", "log", "sqrt", "sin", "tanh", "reciprocal", "conj_physical", "sigmoid"])
def test_complex_functions(op: str, d: dtype) -> None:
    c = Case()
    c.check(*[c.op(op, x) for x in layouts(c, d, -2, 2)], tolerance=close(d, 4))


@pytest.mark.parametrize("d", (BOOL, *INTEGERS), ids=lambda d: d.name)
def test_integer_functions(d: dtype) -> None:
    c = Case()
    ops = ("bitwise_not",) if d is BOOL else ("neg", "abs", "sgn", "bitwise_not")
    c.check(*[c.op(op, x) for op in ops for x in layouts(c, d, -9, 9)])


BINARY_FLOAT = sorted(g.BINARY - {"bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"} - {"nextafter"})


@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", BINARY_FLOAT)
def test_float_binaries(op: str, d: dtype) -> None:
    c = Case()
    low = 0.1 if op == "pow" else -3
    a, b = c.tensor((6, 37), d, low, 3), c.tensor((37,), d, -3 if op != "pow" else -2, 3)
    column, one = c.tensor((6, 1), d, low, 3), c.constant(0.75, d)
    loose = op in ("pow", "atan2", "hypot")
    tolerance = close(d, 4) if loose else 0
    if d in (dtypes.float16, dtypes.bfloat16) and op in ("div_floor", "remainder", "fmod", "div_trunc"):
        tolerance = close(d, 2)
    c.check(c.op(op, a, b), c.op(op, column, b), c.op(op, a, one), tolerance=tolerance)


def test_nextafter() -> None:
    c = Case()
    a, b = c.tensor((40,), FLOAT32), c.tensor((40,), FLOAT32)
    x, y = c.tensor((40,), FLOAT64), c.given(np.full(40, np.inf), FLOAT64)
    c.check(c.op("nextafter", a, b), c.op("nextafter", a, a), c.op("nextafter", x, y))


@pytest.mark.parametrize("d", INTEGERS, ids=lambda d: d.name)
def test_integer_binaries(d: dtype) -> None:
    c = Case()
    a, b, divisor = c.tensor((5, 21), d, -9, 9), c.tensor((21,), d, -9, 9), c.tensor((21,), d, 1, 5)
    small = c.tensor((21,), d, 0, 7)
    results = [c.op(op, a, b) for op in "add sub mul maximum minimum bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge".split()]
    results += [c.op(op, a, divisor) for op in ("div_floor", "div_trunc", "remainder", "fmod")]
    results += [c.op(op, a, small) for op in ("shift_left", "shift_right")]
    results += [c.op("pow", b, small)]
    c.check(*results)


@pytest.mark.parametrize("d", (BOOL, *FLOATS, *COMPLEX), ids=lambda d: d.name)
def test_comparisons_and_where(d: dtype) -> None:
    c = Case()
    a, b = c.tensor((5, 21), d, -1, 1), c.tensor((21,), d, -1, 1)
    ops = ("eq", "ne") if d.is_complex else ("eq", "ne", "lt", "le", "gt", "ge")
    condition = c.tensor((5, 1), BOOL)
    results = [c.op(op, a, b) for op in ops] + [c.op("where", condition, a, b)]
    if d is BOOL:
        results += [c.op(op, a, b) for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum", "add", "mul")]
    c.check(*results)


def test_special_floats() -> None:
    c = Case()
    x = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 1e-42]
    a, b = c.given(np.repeat(x, 8), FLOAT32), c.given(np.tile(x, 8), FLOAT32)
    ops = "add sub mul div copysign eq ne lt le gt ge".split()
    x.remove(-0.0)  # which of 0.0 and -0.0 is the larger is nowhere said
    y, z = c.given(np.repeat(x, 7), FLOAT32), c.given(np.tile(x, 7), FLOAT32)
    larger = [c.op(op, y, z) for op in ("maximum", "minimum", "fmax", "fmin")]
    c.check(*larger, *[c.op(op, a, b) for op in ops], *[c.op(op, a) for op in ("isnan", "sgn", "abs", "neg", "round", "floor", "sqrt")])


@pytest.mark.parametrize("source", (BOOL, *INTEGERS, *FLOATS, *COMPLEX), ids=lambda d: d.name)
def test_casts(source: dtype) -> None:
    c = Case()
    x = c.tensor((67,), source, 0, 100)
    c.check(*[c.cast(x, d) for d in dtypes.ALL if not (source.is_complex and d is BOOL)])


def test_complex_parts() -> None:
    c = Case()
    re, im = c.tensor((33,), FLOAT32), c.tensor((33,), FLOAT32)
    z = c.op("make_complex", re, im)
    product = c.op("mul", z, c.op("make_complex", im, re))
    c.check(z, c.op("real_part", z), c.op("imag_part", product), c.op("add", z, z), tolerance=1e-6)


def test_sources() -> None:
    c = Case()
    seed, offset = c.number(12345678901234), c.number(5)
    results = [c.op("iota", shape=(3, 17), dim=d) for d in (0, 1)] + [c.op("random_uniform", seed, offset, shape=(7, 13))]
    c.check(*results, c.constant(2.5, FLOAT32), c.constant(True, BOOL), c.constant(-3, dtypes.int8), c.constant(1 + 2j, COMPLEX[0]))


def test_parameters() -> None:
    c = Case()
    x = c.tensor((19,), FLOAT32)
    scale, shift, flag = c.number(0.1), c.number(-7), c.number(True)
    y = c.op("add", c.op("mul", x, c.cast(scale, FLOAT32)), c.cast(shift, FLOAT32))
    c.check(y, c.op("where", flag, x, y), c.cast(shift, INT64), c.op("copy", scale))


def test_take_and_searchsorted() -> None:
    c = Case()
    x = c.tensor((50,), FLOAT32)
    index = c.given(np.random.default_rng(0).integers(-50, 50, (6, 7)), INT64)
    edges = c.given(np.sort(np.random.default_rng(1).normal(size=31)), FLOAT64)
    at = c.tensor((4, 9), FLOAT64)
    rows = c.given(np.sort(np.random.default_rng(1).integers(0, 20, (4, 12)), axis=1), INT64)
    among = c.tensor((4, 5), INT64, 0, 20)
    c.check(c.op("take", x, index), c.op("searchsorted", edges, at, right=False), c.op("searchsorted", edges, at, right=True),
            c.op("searchsorted", rows, among, right=False), c.op("searchsorted", rows, among, right=True))  # fmt: skip


# -- Reductions and scans ---------------------------------------------------------------------------------------------

DIMS = [((50,), (0,)), ((6, 70), (1,)), ((6, 70), (0,)), ((6, 70), (0, 1)), ((3, 5, 7), (0, 2)), ((3, 5, 7), (1,)), ((4, 0), (1,)),
        ((2, 3000), (1,)), ((3000, 3), (0,)), ((), ())]  # fmt: skip


@pytest.mark.parametrize("d", (FLOAT32, FLOAT64, dtypes.float16, dtypes.bfloat16, INT64, dtypes.int32, dtypes.complex64, BOOL),
                         ids=lambda d: d.name)  # fmt: skip
@pytest.mark.parametrize("op", ["sum", "prod", "amax", "amin", "argmax", "argmin", "var_mean"])
def test_reductions(op: str, d: dtype) -> None:
    c = Case()
    orderless = op in ("sum", "prod")
    if (d.is_complex and not orderless) or (d is BOOL and op not in ("amax", "amin")) or (op == "var_mean" and d.category != 2):
        pytest.skip("not a legal combination")
    results: list[int] = []
    for shape, dims in DIMS:
        if (0 in shape and op not in ("sum", "prod")) or (op.startswith("arg") and len(dims) != 1):
            continue
        low, high = (0.9, 1.1) if op == "prod" and d.category >= 2 else (-3, 3)
        x = c.tensor(shape, d, low, high)
        attrs: dict[str, Any] = {"correction": 1} if op == "var_mean" else {}
        if op == "var_mean" and shape == ():
            continue
        made = c.op(op, x, dims=dims, **attrs)
        results += made if isinstance(made, tuple) else [made]
        if len(shape) == 2 and 0 not in shape and len(dims) == 1:
            made = c.op(op, c.permute(x, 1, 0), dims=(1 - dims[0],), **attrs)
            results += made if isinstance(made, tuple) else [made]
    c.check(*results, tolerance=close(d, 8 if d.itemsize > 2 else 3) if orderless or op == "var_mean" else 0)


def test_arg_reductions_of_ties_and_nan() -> None:
    c = Case()
    x = c.given([[1, 3, 3, 0, 0], [np.nan, 5, np.nan, 1, 2], [5, np.nan, 7, -np.inf, np.inf]], FLOAT32)
    c.check(*[c.op(op, x, dims=(d,)) for op in ("argmax", "argmin", "amax", "amin") for d in (0, 1)])


@pytest.mark.parametrize("op", sorted(g.SCAN))
def test_scans(op: str) -> None:
    c = Case()
    results: list[int] = []
    for d in (FLOAT32, FLOAT64) if op == "logcumsumexp" else (FLOAT32, FLOAT64, INT64):
        for shape, dim in (((40,), 0), ((5, 33), 1), ((33, 5), 0), ((3, 4, 5), 1)):
            made = c.op(op, c.tensor(shape, d, -2, 2), dim=dim)
            results += made if isinstance(made, tuple) else [made]
    c.check(*results, tolerance=0 if op in ("cummax", "cummin") else 1e-4 if op == "cumprod" else 1e-5)


# -- Dense algebra, windows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", (FLOAT32, FLOAT64, dtypes.float16, dtypes.bfloat16, INT64, dtypes.int8, *COMPLEX), ids=lambda d: d.name)
def test_matrix_products(d: dtype) -> None:
    c = Case()
    a, b = c.tensor((37, 50), d), c.tensor((50, 29), d)
    batched, other = c.tensor((3, 4, 5), d), c.tensor((3, 5, 6), d)
    transposed = c.permute(c.tensor((29, 50), d), 1, 0)
    one = c.tensor((1, 50), d)
    c.check(c.op("matmul", a, b), c.op("matmul", batched, other), c.op("matmul", a, transposed), c.op("matmul", one, b),
            c.op("matmul", c.tensor((4, 0), d), c.tensor((0, 5), d)), tolerance=close(d, 10 if d.itemsize > 2 else 1))  # fmt: skip


CONVOLUTIONS = [
    dict(x=(2, 3, 9, 10), w=(4, 3, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1),
    dict(x=(2, 4, 9, 10), w=(6, 2, 3, 2), stride=(2, 1), padding=(0, 2), dilation=(1, 2), groups=2),
    dict(x=(1, 8, 7, 7), w=(8, 1, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=8),
    dict(x=(3, 5, 1, 1), w=(7, 5, 1, 1), stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1),
]


@pytest.mark.parametrize("d", (FLOAT32, FLOAT64), ids=lambda d: d.name)
@pytest.mark.parametrize("shapes", CONVOLUTIONS, ids=range(len(CONVOLUTIONS)))
def test_convolutions(shapes: dict[str, Any], d: dtype) -> None:
    c = Case()
    x, w = c.tensor(shapes["x"], d), c.tensor(shapes["w"], d)
    attrs = {k: shapes[k] for k in ("stride", "padding", "dilation", "groups")}
    y = c.op("convolution", x, w, **attrs)
    grad = c.op("neg", y)
    c.check(y, c.op("convolution_input_gradient", grad, w, shape=shapes["x"], **attrs),
            c.op("convolution_weight_gradient", grad, x, shape=shapes["w"], **attrs), tolerance=close(d, 10))  # fmt: skip


@pytest.mark.parametrize("d", (FLOAT32, FLOAT64), ids=lambda d: d.name)
@pytest.mark.parametrize("window", [((2, 2), (2, 2), (0, 0), (1, 1), (4, 4)), ((3, 2), (1, 2), (1, 0), (1, 2), (8, 4)),
                                    ((3, 3), (2, 2), (1, 1), (1, 1), (4, 5))])  # fmt: skip
def test_pools(window: Any, d: dtype) -> None:
    kernel, stride, padding, dilation, space = window
    c = Case()
    x = c.tensor((2, 3, 8, 9), d)
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    values, indices = c.op("max_pool", x, shape=(2, 3, *space), **attrs)
    results = [values, indices, c.op("max_pool_gradient", c.op("neg", values), indices, shape=(2, 3, 8, 9), **attrs)]
    if dilation == (1, 1):
        for include, divisor in ((True, 0), (False, 0), (True, 7)):
            more = attrs | {"count_include_pad": include, "divisor": divisor}
            y = c.op("average_pool", x, shape=(2, 3, *space), **more)
            results += [y, c.op("average_pool_gradient", y, shape=(2, 3, 8, 9), **more)]
    c.check(*results, tolerance=close(d, 4))


@pytest.mark.parametrize("d", (FLOAT32, FLOAT64), ids=lambda d: d.name)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(d: dtype, causal: bool) -> None:
    c = Case()
    q, k, v = c.tensor((2, 3, 5, 4), d), c.tensor((2, 3, 7, 4), d), c.tensor((2, 3, 7, 6), d)
    attrs = {"causal": causal, "dropout": 0.0, "masked": False, "scale": 0.5}
    out, lse = c.op("attention", q, k, v, **attrs)
    g_ = c.op("neg", out)
    delta = c.op("sum", c.op("mul", g_, out), dims=(3,))
    c.check(out, lse, *c.op("attention_gradient", g_, q, k, v, lse, delta, **attrs), tolerance=close(d, 50))


@pytest.mark.parametrize("d", (FLOAT32, FLOAT64), ids=lambda d: d.name)
@pytest.mark.parametrize("sizes", [None, [5, 5, 3, 1]], ids=["padded", "packed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["", "reverse"])
@pytest.mark.parametrize("mode", g.GATES)
def test_recurrent_layers(mode: str, reverse: bool, sizes: list[int] | None, d: dtype) -> None:
    """Five sequences, more than a block of them; hidden states that fill no vector, one, and more than a panel."""
    for hidden in (3, 16, 67):
        c = Case()
        rows, width, lstm = 14 if sizes else 15, g.GATES[mode] * hidden, mode == "lstm"
        attrs = {"mode": mode, "reverse": reverse, "packed": sizes is not None}
        steps = [] if sizes is None else [c.given(sizes, INT64)]
        gates, h, w = c.tensor((rows, width), d), c.tensor((5, hidden), d), c.tensor((width, hidden), d, -0.3, 0.3)
        states = [h, c.tensor((5, hidden), d)] if lstm else [h]
        results = c.op("recurrent", gates, *states, w, *[c.tensor((width,), d)] * (mode == "gru"), *steps, keep=True, **attrs)
        y, last, kept = results[0], results[1 : 1 + len(states)], results[1 + len(states) :]
        more = [states[1], kept[0], kept[1]] if lstm else list(kept)
        c.check(*results, *c.op("recurrent_gradient", y, *last, y, h, *more, w, *steps, **attrs), tolerance=close(d, 40))


# -- Movement -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", (FLOAT32, BOOL, dtypes.int16, dtypes.bfloat16, dtypes.complex128), ids=lambda d: d.name)
def test_copies_and_writes(d: dtype) -> None:
    c = Case()
    x = c.tensor((6, 7), d)
    t = c.permute(x, 1, 0)
    base = c.op("copy", x)
    c.check(c.op("copy", t), c.op("copy", t, layout=(1, 7)), c.op("concatenate", x, c.slice(x, 0, 2, 5), dim=0),
            c.op("concatenate", x, c.slice(x, 1, 0, 0), x, dim=1), c.write(base, c.slice(base, 1, 1, 6, 2), c.slice(x, 1, 4, 7)),
            c.write(base, c.permute(base, 1, 0), c.op("copy", t)))  # fmt: skip


def test_write_at_a_runtime_offset() -> None:
    c = Case()
    x = c.tensor((6, 7), FLOAT32)
    base = c.op("neg", x)
    at = c.number(4)
    c.check(c.write(base, c.select(base, 0, parameter=at), c.select(x, 0, 0)), c.op("exp", c.select(x, 1, parameter=at)), tolerance=1e-6)


MODES = ("set", "add", "prod", "amax", "amin")


@pytest.mark.parametrize("d", (FLOAT32, FLOAT64, INT64), ids=lambda d: d.name)
def test_indexed_movement(d: dtype) -> None:
    c = Case()
    generator = np.random.default_rng(0)
    x = c.tensor((6, 7, 3), d)
    rows = c.given(generator.integers(-7, 7, (2, 4)), INT64)
    distinct = c.given(np.array([[0, 1], [-1, 3]]), INT64)
    results = [c.op("take_rows", x, rows, dim=1), c.op("take_rows", x, c.given(5, INT64), dim=0)]
    for mode in MODES:
        index, shape = (distinct, (2, 2)) if mode == "set" else (rows, (2, 4))
        results.append(c.op("put_rows", x, index, c.tensor((6, *shape, 3), d), dim=1, mode=mode))
    flat = c.given(generator.permutation(126)[:20], INT64)
    for mode in MODES:
        results.append(c.op("put", c.reshape(x, 126), flat, c.tensor((20,), d), mode=mode))
    inside = c.given(np.argsort(generator.normal(size=(6, 7, 2)), axis=1)[:, :5], INT64)
    results.append(c.op("gather", x, inside, dim=1))
    for mode in MODES:
        results.append(c.op("scatter", x, inside, c.tensor((6, 5, 2), d), dim=1, mode=mode))
    c.check(*results, tolerance=close(d, 4))


@pytest.mark.parametrize("d", (FLOAT32, FLOAT64, INT64, dtypes.uint8), ids=lambda d: d.name)
def test_sorting(d: dtype) -> None:
    c = Case()
    results: list[int] = []
    for shape, dim in (((40,), 0), ((5, 33), 1), ((33, 5), 0)):
        x = c.tensor(shape, d, -3, 9)
        for flag in (False, True):
            results += c.op("sort", x, dim=dim, descending=flag)
            results += c.op("topk", x, dim=dim, k=4, largest=flag)
    c.check(*results)


@pytest.mark.parametrize(("op", "attrs"), [("take", {}), ("take_rows", {"dim": 0}), ("gather", {"dim": 0})])
@pytest.mark.parametrize("bad", [10, -11, 2**40, -(2**62)])
def test_an_index_out_of_range_stops_the_plan(op: str, attrs: dict[str, Any], bad: int) -> None:
    c = Case()
    x, index = c.tensor((10,), FLOAT32), c.given([0, bad, 3], INT64)
    result = c.op(op, x, index, **attrs)
    with pytest.raises(IndexError, match=str(bad)):
        c.check(result)


FACTORIES: list[Callable[[Case], int]] = [
    lambda c: c.as_strided(c.tensor((12,), FLOAT32), (3, 4), (4, 1)), lambda c: c.expand(c.tensor((3, 1), FLOAT32), 3, 4),
    lambda c: c.as_strided(c.tensor((20,), FLOAT32), (3, 4), (5, 2), 1, op="unfold"),
    lambda c: c.as_strided(c.tensor((16,), FLOAT32), (3, 4), (1, 4), 1, op="diagonal"),
    lambda c: c.as_strided(c.tensor((12,), dtypes.int32), (3, 4), (4, 1), op="bitcast", d=FLOAT32),
    lambda c: c.as_strided(c.tensor((6,), dtypes.complex64), (3, 4), (4, 1), op="real_view", d=FLOAT32),
    lambda c: c.as_strided(c.select(c.tensor((2, 12), FLOAT32), 0, 1), (3, 4), (4, 1), 12, op="view"),
    lambda c: c.as_strided(c.tensor((3, 4), FLOAT32), (3, 4), (4, 1), op="alias"),
]  # fmt: skip


@pytest.mark.parametrize("make", FACTORIES, ids=range(len(FACTORIES)))
def test_views(make: Callable[[Case], int]) -> None:
    c = Case()
    x = make(c)
    c.check(c.op("neg", x), c.op("sum", x, dims=(1,)), c.op("matmul", x, c.permute(x, 1, 0)), tolerance=1e-5)


@pytest.mark.parametrize(
    ("function", "shape", "kwargs", "results"),
    [
        ("cofactor", (4, 4), {}, [(4, 4)]), ("qr", (5, 3), {}, [(5, 3), (3, 3)]), ("slogdet", (3, 4, 4), {}, [(3,), (3,)]),
        ("det", (3, 4, 4), {}, [(3,)]), ("solve_triangular", (4, 4), {"upper": True}, None),
    ],
)  # fmt: skip
def test_host_calls(function: str, shape: tuple[int, ...], kwargs: dict[str, Any], results: Any) -> None:
    c = Case()
    x = c.tensor(shape, FLOAT64)
    inputs = [x, c.tensor((4, 2), FLOAT64)] if results is None else [x]
    made = c.host_call(function, *inputs, results=[(s, FLOAT64) for s in results or [(4, 2)]], **kwargs)
    made = made if isinstance(made, tuple) else (made,)
    c.check(*[c.op("neg", m) for m in made], tolerance=1e-12)


@pytest.mark.parametrize("d", [FLOAT32, FLOAT64], ids=lambda d: d.name)
def test_fourier(d: dtype) -> None:
    """Along the first and the last dim, of lengths that are one factor, several and a prime beyond the radices."""
    complex_ = d.to_complex()
    for n in (1, 12, 101):
        whole, points = {"size": n, "scale": 0.5}, n // 2 + 1
        c, results = Case(), []
        for dim in (0, 1):
            shape = (n, 3) if dim == 0 else (3, n)
            half = (points, 3) if dim == 0 else (3, points)
            results += [
                c.op("fourier", c.tensor(shape, complex_), dim=dim, kind="complex", inverse=False, **whole),
                c.op("fourier", c.tensor(shape, d), dim=dim, kind="complex", inverse=True, **whole),
                c.op("fourier", c.tensor(shape, d), dim=dim, kind="real", inverse=False, **whole),
                c.op("fourier", c.tensor(half, complex_), dim=dim, kind="hermitian", inverse=True, **whole),
            ]
        c.check(*results, tolerance=close(complex_, 10))


@pytest.mark.parametrize(("bits", "group"), [(8, 32), (4, 32), (4, 128)])
@pytest.mark.parametrize("rows", [1, 3])
def test_coded_matmul(bits: int, group: int, rows: int) -> None:
    c = Case()
    x = c.tensor((rows, 256), FLOAT32)
    codes = c.given(np.random.default_rng(1).integers(0, 256, (20, 256 * bits // 8)), dtypes.uint8)
    scales, zeros = (c.tensor((20, 256 // group), FLOAT32, low, high) for low, high in ((0.1, 0.2), (0, 15)))
    c.check(c.op("coded_matmul", x, codes, scales, zeros, code_bits=bits, group=group), tolerance=1e-4)


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("k", [16, 48, 256])
def test_two_of_four_matmul(rows: int, k: int) -> None:
    c = Case()
    generator = np.random.default_rng(2)
    there = np.zeros((11, k // 4, 4), bool)
    np.put_along_axis(there, generator.random((11, k // 4, 4)).argsort(-1)[..., :2], True, -1)
    places = c.given(np.packbits(there.reshape(11, k), axis=1, bitorder="little"), dtypes.uint8)
    c.check(c.op("two_of_four_matmul", c.tensor((rows, k), FLOAT32), c.tensor((11, k // 2), FLOAT32), places), tolerance=1e-5)


def test_every_primitive_was_tested() -> None:
    """Runs last: a primitive that no test above compiled is not covered."""
    if len(covered) > 20:  # the whole file ran, not one test of it
        assert g.PRIMITIVES - covered == set()
