"""Matrix products by dot instructions of vectors: bfloat16 and int8 against exact sums, every order of the operands, and what the texts contain."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import dtypes
from flambeau.compiler.graph import WIDER, Graph, Node, Value, contiguous_strides
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels import matrix_vector
from flambeau.compiler.kernels.matmul import make_matmul
from flambeau.runtime import jit, target, tiles
from flambeau.runtime.target import Target
from tests.kernels.harness import Runner, aligned

needs_dots = pytest.mark.skipif(
    not target.dots() or bool(tiles.dtypes()), reason="this machine has no dot instructions of 512 bits, or a matrix unit that is preferred"
)
SIZES = [(5, 3, 7), (5, 1, 64), (8, 16, 32), (17, 33, 31), (33, 65, 129), (50, 70, 300), (100, 430, 1100), (70, 40, 4200), (6, 5, 1), (9, 7, 0)]
Array = np.ndarray[Any, Any]
HOST = Target.host()


@pytest.fixture(scope="module", autouse=True)
def _few_rows_of_any_matrix() -> Iterator[None]:
    """The kernels for a few rows are tested with small matrices, too, for which they are not chosen as a rule."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_vector, "LEAST_TERMS", 0)
        patch.setattr(matrix_vector, "LEAST_ELEMENTS", 0)
        yield


def widened(bits: Array) -> Array:
    """bfloat16 numbers, of their bits, in float64."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def rounded(x: Array) -> Array:
    """The bits of float32 numbers as bfloat16, to nearest even."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def product(
    a: Array, b: Array, d: dtypes.dtype, orders: tuple[bool, bool, bool] = (False, False, False), splits: int = 1, wide: bool = False
) -> tuple[Array, list[str]]:  # fmt: skip
    """a @ b of the bits, each in memory as its order says (True: column by column), and the kernels' keys. `wide`: in the dtype of the sums."""
    graph, buffers = Graph(), {}
    out_dtype = WIDER[d] if wide else d
    shapes = (a.shape, b.shape, (a.shape[0], b.shape[1]))
    ids = []
    for shape, turned, kind in zip(shapes, orders, (d, d, out_dtype), strict=True):
        strides = (1, max(shape[0], 1)) if turned else contiguous_strides(shape)
        ids.append(graph.add_value(Value(shape, kind, strides)))
    for at, x in zip(ids, (a, b), strict=False):
        buffers[at] = aligned(max(x.nbytes, 1))
        buffers[at][: x.nbytes] = np.frombuffer(x.tobytes("F" if orders[ids.index(at)] else "C"), np.uint8)
    out = aligned(shapes[2][0] * shapes[2][1] * out_dtype.itemsize)
    buffers[ids[2]] = out
    graph.nodes.append(Node("matmul", (ids[0], ids[1]), (ids[2],), (("wide", True),) if wide else ()))
    kernels = make_matmul(graph, 0)
    Runner(kernels, graph, buffers).run(splits)
    return out.view(out_dtype.name if wide else a.dtype).reshape(shapes[2], order="F" if orders[2] else "C"), [kernel.key for kernel in kernels]


def check_bfloat16(a: Array, b: Array, orders: tuple[bool, bool, bool]) -> list[str]:
    found, keys = product(a, b, dtypes.bfloat16, orders)
    wide = widened(a), widened(b)
    exact = wide[0] @ wide[1]
    k = a.shape[1]
    # Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.5: the products are exact, each addition errs by half a unit; one more rounding.
    bound = (k + 4) * 2.0**-24 * (np.abs(wide[0]) @ np.abs(wide[1])) + 2.0**-8 * np.abs(exact) + (k + 1) * 2.0**-126
    assert (np.abs(widened(found) - exact) <= bound).all()
    sums = product(a, b, dtypes.bfloat16, orders, wide=True)[0]  # as they are before they are rounded
    np.testing.assert_array_equal(rounded(sums), found)
    for splits in (2, 3, 7):
        np.testing.assert_array_equal(product(a, b, dtypes.bfloat16, orders, splits)[0], found)
        np.testing.assert_array_equal(product(a, b, dtypes.bfloat16, orders, splits, True)[0], sums)
    return keys


def check_int8(a: Array, b: Array, orders: tuple[bool, bool, bool]) -> list[str]:
    exact = a.astype(np.int64) @ b.astype(np.int64)
    for splits in (1, 3):
        for wide in (True, False):
            found, keys = product(a, b, dtypes.int8, orders, splits, wide)
            np.testing.assert_array_equal(found, exact.astype(found.dtype))
    return keys


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rounded(rng.standard_normal(shape))


def integers(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-128, 128, shape, dtype=np.int8)


WAYS = [(floats, check_bfloat16), (integers, check_int8)]


@pytest.mark.parametrize("make, check", WAYS, ids=("bfloat16", "int8"))
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("orders", [(False, False, False), (True, False, False), (False, True, False), (True, True, True)], ids=str)
def test_sizes_and_orders(size: tuple[int, int, int], orders: tuple[bool, bool, bool], make: Callable[..., Array], check: Callable[..., list[str]]) -> None:
    """Whole and partial panels, several blocks of K; on machines without such instructions by whatever they have."""
    m, n, k = size
    rng = np.random.default_rng(m)
    keys = check(make(rng, m, k), make(rng, k, n), orders)
    if target.dots() and not tiles.dtypes() and min(m, n) > (24 if make is floats else 4):
        assert keys[0].startswith("matmul:dots:")


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 17, 19, 24])
@pytest.mark.parametrize("columns, k", [(3, 65), (40, 1), (70, 31), (530, 75), (1100, 64)])
def test_few_rows_of_bfloat16(rows: int, columns: int, k: int) -> None:
    """Where the matrix lies, transposed or not, and on either side: several lines of sums, ends of all vectors, odd K; the bits whatever the threads."""
    rng = np.random.default_rng(rows)
    few, matrix = floats(rng, rows, k), floats(rng, k, columns)
    for turned, way in ((True, "matmul:dot:instruction:"), (False, "matmul:rows:" if rows > 1 else "matmul:sweep:")):
        keys = check_bfloat16(few, matrix, (False, turned, False))
        other = check_bfloat16(matrix.T.copy(), few.T.copy(), (not turned, True, True))
        if target.dots() and not tiles.dtypes() and min(rows, columns, k) > 1 and columns > rows:
            assert keys[0].startswith(way) and other[0].startswith(way)


@settings(max_examples=60, deadline=None)
@given(m=st.integers(1, 70), n=st.integers(1, 70), k=st.integers(0, 200), orders=st.tuples(*[st.booleans()] * 3), seed=st.integers(0, 9))
def test_any_size(m: int, n: int, k: int, orders: tuple[bool, bool, bool], seed: int) -> None:
    rng = np.random.default_rng(seed)
    for make, check in WAYS:
        check(make(rng, m, k), make(rng, k, n), orders)  # type: ignore[operator]


@pytest.mark.parametrize("k", [300, 140_000])
def test_the_extremes_of_int8(k: int) -> None:
    """Where a byte's shift could overflow: all signs of the greatest magnitudes, columns whose sums are far from zero, sums beyond int32."""
    for left in (-128, 127):
        for right in (-128, 127):
            check_int8(np.full((9, k), left, np.int8), np.full((k, 20), right, np.int8), (False, False, False))


@pytest.mark.parametrize("size", [(1, 300, 300), (1, 1, 500), (4, 70, 300), (3, 1, 40), (2, 9, 1), (40, 2, 0), (20, 33, 70)], ids=str)
@pytest.mark.parametrize("orders", [(False, False, False), (False, True, False), (True, False, True)], ids=str)
@pytest.mark.parametrize("dots", [True, False], ids=("by dot instructions", "by vectors"))
def test_wide_results_of_every_way(size: tuple[int, int, int], orders: tuple[bool, bool, bool], dots: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not dots:
        monkeypatch.setattr(Target, "host", classmethod(lambda _: replace(HOST, dots=frozenset(), matrix=frozenset())))
    rng = np.random.default_rng(2)
    check_int8(integers(rng, size[0], size[2]), integers(rng, size[2], size[1]), orders)


@pytest.mark.parametrize("orders", [(False, False, False), (True, True, False), (False, True, False)], ids=str)
def test_what_stands_beside_the_end_of_k_is_not_multiplied(orders: tuple[bool, bool, bool]) -> None:
    rng = np.random.default_rng(0)
    for rows, k in itertools.product((2, 6, 30), (33, 45, 64)):
        a, b = floats(rng, rows, k), floats(rng, k, 40)
        a[0, k - 1] = 0x7F80  # infinity
        b[5, 9] = 0x7FC0  # NaN
        found = widened(product(a, b, dtypes.bfloat16, orders)[0])
        with np.errstate(invalid="ignore"):
            exact = widened(a) @ widened(b)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(exact))


@needs_dots
@pytest.mark.parametrize("rows", [2, 30])
@pytest.mark.parametrize("turned", [False, True])
def test_denormal_operands_count_as_zero(rows: int, turned: bool) -> None:
    a, b = np.full((rows, 40), 0x0040, np.uint16), np.full((40, 32), 0x7E80, np.uint16)  # 2^-127, 2^126
    assert (product(a, b, dtypes.bfloat16, (False, turned, False))[0] == 0).all()


def _texts(name: str, d: dtypes.dtype, rows: int = 70, turned: bool = False) -> str:
    machine = Target.named(name, 2)
    graph = Graph(target=machine)
    shapes = ((rows, 90), (90, 50), (rows, 50))
    ids = [graph.add_value(Value(shape, d, (1, 90) if turned and shape == (90, 50) else contiguous_strides(shape))) for shape in shapes]
    graph.nodes.append(Node("matmul", (ids[0], ids[1]), (ids[2],)))
    texts = []
    for kernel in make_matmul(graph, 0):
        texts += [kernel.emit(machine), *(word.emit(machine) for word in kernel.words if isinstance(word, Function))]
    return "\n".join(jit.assembly(text, machine) for text in texts)


@pytest.mark.parametrize("d, instruction, unit", [(dtypes.bfloat16, "vdpbf16ps", "tdpbf16ps"), (dtypes.int8, "vpdpbusd", "tdpbssd")], ids=("bfloat16", "int8"))
def test_each_target_multiplies_by_its_own_atoms(d: dtypes.dtype, instruction: str, unit: str) -> None:
    for name, there, others in (("znver4", (instruction,), (unit,)), ("sapphirerapids", (unit,), (instruction,)), ("x86-64-v3", (), (instruction, unit))):
        text = _texts(name, d)
        assert all(word in text for word in there) and not any(word in text for word in others)


def test_small_matrices_take_no_dot_products_of_few_rows() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_vector, "LEAST_TERMS", 256)
        patch.setattr(matrix_vector, "LEAST_ELEMENTS", 1 << 17)
        znver4 = Target.named("znver4")
        for n, k, rows in ((512, 256, 24), (511, 256, 4), (4096, 255, 4)):
            assert matrix_vector.most_rows("bfloat16", znver4, n, k) == rows
        assert matrix_vector.most_rows("int8", znver4, 4096, 4096) == matrix_vector.most_rows("bfloat16", Target.named("sapphirerapids"), 4096, 4096) == 4


@pytest.mark.parametrize("turned", [False, True])
def test_few_rows_go_by_the_dot_instruction_that_a_target_has(turned: bool) -> None:
    assert "vdpbf16ps" in _texts("znver4", dtypes.bfloat16, 3, turned) and "vdpbf16ps" in _texts("znver4", dtypes.bfloat16, 20, turned)
    assert ("vdpbf16ps" in _texts("sapphirerapids", dtypes.bfloat16, 3, turned)) == turned
    assert "tdpbf16ps" in _texts("sapphirerapids", dtypes.bfloat16, 20, turned)
    for name in ("x86-64-v3", "aarch64-linux"):
        for rows in (3, 20):
            assert "dpbf16" not in _texts(name, dtypes.bfloat16, rows, turned)


def test_atoms_of_dot_instructions() -> None:
    atoms = {atom.name: atom for atom in Target.named("znver4").atoms}
    assert (atoms["dot_bfloat16"].k, atoms["dot_bfloat16"].sums) == (2, "float32") and (atoms["dot_int8"].k, atoms["dot_int8"].sums) == (4, "int32")
    assert not any(atom.name.startswith("dot") for name in ("x86-64-v3", "aarch64-linux") for atom in Target.named(name).atoms)


def test_dot_instructions_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert target.dots.__wrapped__() == target.dots()
    monkeypatch.setenv("FLAMBEAU_DOT_INSTRUCTIONS", "0")
    assert target.dots.__wrapped__() == frozenset()
