"""Matrix products against exact references: sizes, strides, batches, dtypes, any split of the units."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import dtypes
from flambeau.compiler.graph import Graph, Node, Value, contiguous_strides
from flambeau.compiler.kernels.matmul import make_matmul
from flambeau.runtime import tiles
from flambeau.runtime.target import Target
from tests.kernels.harness import Runner, aligned

REAL = [d for d in dtypes.ALL if not d.is_complex and d is not dtypes.bool_ and d is not dtypes.bfloat16]


def permuted(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Dense strides of `shape` whose memory order, outermost first, is `order`."""
    strides = [0] * len(shape)
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def random_array(rng: np.random.Generator, count: int, d: dtypes.dtype) -> np.ndarray:
    if d.is_complex:
        return (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(d.numpy_name)
    if d.is_floating_point:
        return rng.standard_normal(count).astype(d.numpy_name)
    if d is dtypes.bool_:
        return rng.integers(0, 2, count).astype(bool)
    low = 0 if d is dtypes.uint8 else -50
    return rng.integers(low, 100, count).astype(d.numpy_name)


class Case:
    """One product, built as a graph: each operand is a storage and the strides, offset and shape of a view of it."""

    def __init__(
        self, a_shape: tuple[int, ...], b_shape: tuple[int, ...], d: dtypes.dtype = dtypes.float32, *,
        a_strides: tuple[int, ...] | None = None, b_strides: tuple[int, ...] | None = None,
        c_strides: tuple[int, ...] | None = None, offset: int = 0, seed: int = 0,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng(seed)
        self.dtype = d
        self.graph = graph = Graph()
        c_shape = (*a_shape[:-1], b_shape[-1])
        self.buffers: dict[int, np.ndarray] = {}
        views = []
        for shape, strides in ((a_shape, a_strides), (b_shape, b_strides)):
            strides = contiguous_strides(shape) if strides is None else strides
            extent = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else offset
            storage = random_array(rng, extent, d)
            root = graph.add_value(Value((extent,), d, (1,)))
            graph.inputs.append(root)
            self.buffers[root] = storage
            view = graph.add_value(Value(shape, d, strides, offset, root))
            graph.nodes.append(Node("view", (root,), (view,)))
            bytes_ = tuple(s * d.itemsize for s in strides)
            views.append((view, np.lib.stride_tricks.as_strided(storage[offset:], shape, bytes_)))
        (a, self.a), (b, self.b) = views
        strides = contiguous_strides(c_shape) if c_strides is None else c_strides
        c = graph.add_value(Value(c_shape, d, strides))
        graph.nodes.append(Node("matmul", (a, b), (c,)))
        storage = aligned(int(np.prod(c_shape)) * d.itemsize).view(d.numpy_name)
        self.buffers[c] = storage
        self.c = np.lib.stride_tricks.as_strided(storage, c_shape, tuple(s * d.itemsize for s in strides))
        self.storage = storage

    def run(self, splits: int = 1) -> np.ndarray:
        self.storage.view(np.uint8)[:] = 0xA5
        runner = Runner(make_matmul(self.graph, 2), self.graph, self.buffers)
        runner.run(splits)
        return self.c.copy()

    def check(self) -> None:
        result = self.run()
        d = self.dtype
        if not d.is_floating_point and not d.is_complex:
            exact = self.a.astype(np.int64) @ self.b.astype(np.int64)
            np.testing.assert_array_equal(result, exact.astype(d.numpy_name))
        else:
            wide = np.complex128 if d.is_complex else np.float64
            a, b = self.a.astype(wide), self.b.astype(wide)
            k = a.shape[-1]
            # Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.5: |error| <= gamma_k |a| |b|; complex
            # products have twice the terms. One more rounding stores the result.
            unit = np.finfo(np.float32 if d is dtypes.float16 else self.a.dtype).eps / 2
            bound = (k + 4) * (4 if d.is_complex else 1) * unit * (np.abs(a) @ np.abs(b))
            exact = a @ b
            bound = bound + np.finfo(self.a.dtype).eps * np.abs(exact) + np.finfo(self.a.dtype).smallest_subnormal
            assert (np.abs(result.astype(wide) - exact) <= bound).all()
        for splits in (2, 3, 7):
            np.testing.assert_array_equal(self.run(splits), result, strict=True)


SIZES = [
    (1, 1, 1), (14, 32, 16), (13, 31, 15), (15, 33, 17), (1, 300, 700), (300, 1, 700), (1, 1, 1000), (2, 70, 33),
    (4, 9, 784),
    (3, 3000, 20), (9, 2, 90), (37, 45, 51), (32, 256, 784), (200, 10, 300), (100, 64, 1), (28, 64, 257), (61, 2100, 3),
    (1, 2100, 600),
    (5, 7, 0), (1, 7, 0), (7, 1, 0),
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("orders", [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)], ids=str)
def test_float32_sizes_and_orders(size: tuple[int, int, int], orders: tuple[int, int, int]) -> None:
    m, n, k = size
    strides = [permuted(shape, (1, 0) if o else (0, 1)) for shape, o in zip(((m, k), (k, n), (m, n)), orders, strict=True)]
    Case((m, k), (k, n), a_strides=strides[0], b_strides=strides[1], c_strides=strides[2]).check()


@pytest.mark.parametrize(
    ("size", "count"),
    [((20, 30, 10000), 2), ((64, 64, 4096), 2), ((1, 1, 100000), 2), ((1, 20, 140003), 2), ((4, 3, 70000), 2),
     ((30, 1, 70001), 2), ((200, 300, 5000), 2), ((200, 300, 4000), 1), ((600, 600, 4100), 1)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=str)
def test_long_k_is_cut_into_parts(size: tuple[int, int, int], count: int, transposed: tuple[int, int]) -> None:
    m, n, k = size
    a, b = (permuted(s, (1, 0) if t else (0, 1)) for s, t in zip(((m, k), (k, n)), transposed, strict=True))
    case = Case((m, k), (k, n), a_strides=a, b_strides=b, c_strides=(1, m))
    assert len(make_matmul(case.graph, 2)) == count
    case.check()


@pytest.mark.parametrize("d", [*REAL, dtypes.complex64, dtypes.complex128], ids=lambda d: d.name)
@pytest.mark.parametrize("size", [(1, 1, 1), (1, 130, 300), (3, 40, 300), (50, 70, 300), (130, 1, 40), (4, 3, 0)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_dtypes(d: dtypes.dtype, size: tuple[int, int, int], transposed: bool) -> None:
    m, n, k = size
    Case((m, k), (k, n), d, b_strides=(1, max(k, 1)) if transposed else None).check()


def test_bool_is_any_of_and() -> None:
    case = Case((20, 30), (30, 40), dtypes.bool_)
    case.a[:] &= np.arange(30) % 7 == 0
    expected = (case.a.astype(int) @ case.b.astype(int)) > 0
    assert expected.any() and not expected.all()
    np.testing.assert_array_equal(case.run(), expected)


def test_bfloat16_rounds_once_to_nearest_even() -> None:
    """Exact sums of a few bfloat16 products, rounded by fractions."""
    m, n, k = 17, 35, 4
    rng = np.random.default_rng(1)
    graph = Graph()
    ids = [graph.add_value(Value(shape, dtypes.bfloat16, contiguous_strides(shape))) for shape in ((m, k), (k, n), (m, n))]
    graph.nodes.append(Node("matmul", (ids[0], ids[1]), (ids[2],)))
    floats = [(rng.integers(-200, 200, shape) / 16).astype(np.float32) for shape in ((m, k), (k, n))]
    # Integers below 256 over 16 have at most 8 bits: they are bfloat16 numbers, and their sums exact float32 numbers.
    bits = [(f.view(np.uint32) >> 16).astype(np.uint16) for f in floats]
    out = np.zeros((m, n), np.uint16)
    buffers = dict(zip(ids, [bits[0], bits[1], out], strict=True))
    Runner(make_matmul(graph, 0), graph, buffers).run()
    result = (out.astype(np.uint32) << 16).view(np.float32)
    for i in range(m):
        for j in range(n):
            exact = sum(Fraction(float(floats[0][i, t])) * Fraction(float(floats[1][t, j])) for t in range(k))
            below = int(out[i, j])
            for neighbour in (below - 1, below + 1):
                other = float(np.array([neighbour & 0xFFFF], np.uint32).view(np.uint32).__lshift__(16).view(np.float32)[0])
                distance = abs(Fraction(float(result[i, j])) - exact)
                if np.isfinite(other):
                    assert distance <= abs(Fraction(other) - exact)
                    if distance == abs(Fraction(other) - exact):
                        assert below % 2 == 0, "ties go to even"


def test_special_values() -> None:
    for shape in ((1, 40), (3, 40), (30, 40)):
        case = Case(shape, (40, 50))
        case.a[0, 3] = np.inf
        case.b[3, 7] = 0.0
        case.b[5, 9] = np.nan
        with np.errstate(invalid="ignore"):
            expected = case.a.astype(np.float64) @ case.b.astype(np.float64)
        result = case.run()
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(result), np.isinf(expected))


BATCHED = [
    # (a's shape, b's shape, a's strides, b's strides, c's strides)
    ((6, 20, 30), (6, 30, 40), None, None, None),
    ((2, 3, 20, 30), (2, 3, 30, 40), None, None, None),
    ((5, 20, 30), (5, 30, 40), None, (0, 40, 1), None),  # shared b: merged into the rows
    ((5, 20, 30), (5, 30, 40), (0, 30, 1), None, None),  # shared a
    ((2, 5, 20, 30), (2, 5, 30, 40), None, (1200, 0, 40, 1), None),
    ((5, 1, 30), (5, 30, 40), None, (0, 1, 30), None),
    ((5, 1, 30), (5, 30, 40), None, None, None),
    ((5, 20, 30), (5, 30, 1), None, None, None),
    ((5, 20, 30), (5, 30, 1), None, (0, 1, 1), None),
    # heads of attention: (B, T, H, D) seen as (B, H, T, D), and the result written so
    ((2, 3, 16, 8), (2, 3, 8, 16), (384, 8, 24, 1), (384, 8, 1, 24), None),
    ((2, 3, 16, 16), (2, 3, 16, 8), None, (384, 8, 24, 1), (384, 8, 24, 1)),
    ((2, 3, 4, 9, 10), (2, 3, 4, 10, 11), (1080, 90, 270, 10, 1), None, None),  # a batch that does not merge
    ((3, 20, 30), (3, 30, 40), None, None, (1, 120, 3)),  # the batch is innermost in c
    ((3, 20, 30), (3, 30, 40), (1, 90, 3), (1, 120, 3), None),
    ((1, 20, 30), (1, 30, 40), (7, 30, 1), None, None),
    ((0, 20, 30), (0, 30, 40), None, None, None),
]  # fmt: skip


@pytest.mark.parametrize("case", BATCHED, ids=lambda c: f"{c[0]}@{c[1]}")
@pytest.mark.parametrize("d", [dtypes.float32, dtypes.float64, dtypes.int64, dtypes.complex64], ids=lambda d: d.name)
def test_batches(case: tuple[tuple[int, ...], ...], d: dtypes.dtype) -> None:
    a, b, a_strides, b_strides, c_strides = case
    Case(a, b, d, a_strides=a_strides, b_strides=b_strides, c_strides=c_strides, offset=3).check()


@settings(max_examples=150, deadline=None)
@given(
    m=st.integers(1, 90), n=st.integers(1, 90), k=st.integers(0, 70), batch=st.lists(st.integers(1, 3), max_size=3),
    data=st.data(),
)  # fmt: skip
def test_any_strides(m: int, n: int, k: int, batch: list[int], data: st.DataObject) -> None:
    def strides(shape: tuple[int, ...], dense: bool) -> tuple[int, ...]:
        order = tuple(data.draw(st.permutations(range(len(shape)))))
        result = list(permuted(shape, order))
        if not dense:
            gap = data.draw(st.integers(1, 3))
            result = [s * gap for s in result]
            for dim in range(len(shape)):
                if data.draw(st.integers(0, 5)) == 0:
                    result[dim] = 0  # expanded
        return tuple(result)

    a, b = (*batch, m, k), (*batch, k, n)
    d = data.draw(st.sampled_from([dtypes.float32, dtypes.float64, dtypes.int16]))
    Case(
        a, b, d, a_strides=strides(a, False), b_strides=strides(b, False), c_strides=strides((*batch, m, n), True),
        offset=data.draw(st.integers(0, 5)),
    ).check()  # fmt: skip


@pytest.mark.parametrize("size", [(700, 300, 600), (1, 700, 3000), (4, 300, 3000), (64, 64, 5000)], ids=str)
def test_float32_error_is_that_of_blocked_sums(size: tuple[int, int, int]) -> None:
    """Root-mean-square error within a small factor of rounding the inputs' products one by one in blocks of 256."""
    m, n, k = size
    case = Case((m, k), (k, n))
    exact = case.a.astype(np.float64) @ case.b.astype(np.float64)
    error = np.sqrt(np.mean((case.run() - exact) ** 2))
    # A random walk of roundings: each of the 256 additions of a block, then each of the blocks, errs by up to half a
    # unit in the last place of a partial sum of standard deviation sqrt(terms).
    assert error < np.finfo(np.float32).eps / 2 * np.sqrt(k) * np.sqrt(min(k, 256) + k / 256) / 2


class DoubleIt:
    """An epilogue: other[b, i, j] = 2 * c[b, i, j] + 1, for dense c of the original shape."""

    key = "test:double"

    def __init__(self, product: int, other: int, rows: int, columns: int) -> None:
        from flambeau.compiler.kernel import Address, Word

        self.words: list[Word] = [Address(product), Address(other), rows, columns]

    def declarations(self, target: Target) -> list[str]:
        return []

    def emit(self, name: str, first_word: int, target: Target) -> str:
        from flambeau.compiler.emit.builder import Builder

        b = Builder(target)
        product, other = (b.load("ptr", b.gep("i64", "%args", first_word + i), 8) for i in (0, 1))
        rows, columns = (b.load("i64", b.gep("i64", "%args", first_word + i), 8) for i in (2, 3))
        with b.for_("%row0", "%row1") as i:
            line = b.mul(b.add(b.mul("%batch", rows), i), columns)
            with b.for_("%col0", "%col1") as j:
                at = b.add(line, j)
                value = b.load("float", b.gep("float", product, at), 4)
                old = b.load("float", b.gep("float", other, at), 4)  # zero before: counts the visits
                once = b.op(f"fadd float {old}, 1.0")
                b.store(
                    "float",
                    b.op(f"fadd float {b.op(f'fmul float {value}, 2.0')}, {once}"),
                    b.gep("float", other, at),
                    4,
                )
        return b.function(f"define internal void @{name}(ptr %args, i64 %batch, i64 %row0, i64 %row1, i64 %col0, i64 %col1) #0")


@pytest.mark.parametrize(
    ("a", "b", "b_strides"),
    [
        ((50, 70), (70, 90), None), ((50, 600), (600, 90), None), ((32, 600), (600, 256), (1, 600)),
        ((1, 70), (70, 90), None), ((1, 70), (70, 90), (1, 70)), ((90, 70), (70, 1), None),
        ((3, 20, 30), (3, 30, 40), None),
        ((3, 20, 30), (3, 30, 40), (0, 40, 1)), ((3, 4, 30), (3, 30, 400), (0, 1, 30)),
        ((5, 1, 30), (5, 30, 40), (0, 40, 1)), ((5, 9, 30), (5, 30, 1), (0, 1, 1)), ((20, 30), (30, 3000), None),
        ((20, 9000), (9000, 30), None), ((2, 1, 70000), (2, 70000, 3), (0, 1, 70000)),
        ((3, 0), (0, 5), None),
    ],
    ids=str,
)  # fmt: skip
def test_epilogue_sees_each_element_once(
    a: tuple[int, ...], b: tuple[int, ...], b_strides: tuple[int, ...] | None
) -> None:  # fmt: skip
    case = Case(a, b, b_strides=b_strides)
    product = case.graph.nodes[2].outputs[0]
    shape = case.c.shape
    other = case.graph.add_value(Value(shape, dtypes.float32, contiguous_strides(shape)))
    epilogue = DoubleIt(product, other, shape[-2], shape[-1])
    kernels = make_matmul(case.graph, 2, epilogue)
    for splits in (1, 2, 5):
        result = np.zeros(shape, np.float32)
        Runner(kernels, case.graph, {**case.buffers, other: result}).run(splits)
        np.testing.assert_array_equal(result, 2 * case.c + 1)


def test_one_text_serves_many_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows or columns: read directly; many: packed. Within each, sizes are run-time words."""
    monkeypatch.setattr(tiles, "dtypes", frozenset)
    for sizes in (
        ((8, 40, 50), (16, 4000, 70), (31, 64, 20)), ((32, 40, 50), (500, 60, 700), (64, 64, 20)),
        ((60, 400, 50), (500, 600, 700), (64, 1024, 20)),
    ):  # fmt: skip
        keys = {make_matmul(Case((m, k), (k, n)).graph, 2)[0].key for m, n, k in sizes}
        assert len(keys) == 1
