"""Matrix products for other machines: without a matrix unit, and texts that compile for AVX2 and AArch64."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.compiler.graph import Graph, Node, Value, contiguous_strides
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels import matmul
from flambeau.runtime import jit, tiles
from flambeau.runtime.target import Target
from tests.kernels.test_matmul import Case

SHORT = [dtypes.float16, dtypes.int8, dtypes.uint8]
SIZES = [(1, 130, 300), (3, 40, 300), (17, 33, 31), (50, 70, 300), (100, 430, 1100), (130, 1, 40), (4, 3, 0)]


@pytest.fixture
def no_matrix_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "dtypes", frozenset)


@pytest.mark.usefixtures("no_matrix_unit")
@pytest.mark.parametrize("d", SHORT, ids=lambda d: d.name)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)], ids=str)
def test_short_elements_by_vectors(d: dtypes.dtype, size: tuple[int, int, int], transposed: tuple[bool, bool]) -> None:
    _check(d, size, transposed)


@pytest.mark.parametrize("d", SHORT, ids=lambda d: d.name)
@pytest.mark.parametrize("size", [*SIZES, (300, 70, 9000), (64, 64, 4160)], ids=str)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_short_elements_by_the_matrix_unit(
    d: dtypes.dtype, size: tuple[int, int, int], transposed: tuple[bool, bool]
) -> None:  # fmt: skip
    """Whole and partial tiles, several blocks of K, every order of the operands."""
    if d.name not in tiles.dtypes():
        pytest.skip(f"this machine has no matrix unit that multiplies {d.name}, or the system does not lend it")
    case = _check(d, size, transposed)
    if size[0] > 4 and size[1] > 4:
        assert matmul.make_matmul(case.graph, 2)[0].key.startswith("matmul:tiles:")


@pytest.mark.skipif(not tiles.dtypes(), reason="this machine has no matrix unit, or the system does not lend it")
@pytest.mark.parametrize("strides", [((61, 2), (2, 90)), ((2, 40), (80, 2))], ids=str)
def test_matrix_unit_reads_any_strides(strides: tuple[tuple[int, int], tuple[int, int]]) -> None:
    for d in SHORT:
        Case((20, 30), (30, 40), d, a_strides=strides[0], b_strides=strides[1], c_strides=(1, 20), offset=3).check()


@pytest.mark.skipif(not tiles.dtypes(), reason="this machine has no matrix unit, or the system does not lend it")
def test_special_values_in_the_matrix_unit() -> None:
    """What stands beside the end of K must not turn an infinity into a NaN."""
    for m, n, k in ((30, 40, 45), (20, 40, 33)):
        case = Case((m, k), (k, n), dtypes.float16)
        case.a[0, k - 1] = np.inf
        case.b[5, 9] = np.nan
        case.a[3, 2] = 6e-8  # the least float16: denormal, but no zero
        case.a[3, 3:] = case.a[3, :2] = 0
        case.b[2, :] = 1
        case.b[5, 9] = np.nan
        with np.errstate(invalid="ignore"):
            expected = case.a.astype(np.float64) @ case.b.astype(np.float64)
        result = case.run().astype(np.float64)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(result), np.isinf(expected))
        np.testing.assert_array_equal(result[3, :9], np.float16(6e-8).astype(np.float64))


def _check(d: dtypes.dtype, size: tuple[int, int, int], transposed: tuple[bool, bool]) -> Case:
    m, n, k = size
    a, b = ((1, m) if transposed[0] else None), ((1, max(k, 1)) if transposed[1] else None)
    case = Case((m, k), (k, n), d, a_strides=a, b_strides=b)
    case.check()
    return case


OTHERS = [("x86-64-v3", "ymm", "vfmadd"), ("aarch64-linux", "\tv", "fmla")]  # target, what its vectors are called, its multiply-add


@pytest.mark.parametrize("name, register, multiply_add", OTHERS, ids=lambda x: x)
@pytest.mark.parametrize("size", [(1, 300, 300), (4, 300, 300), (20, 300, 300), (100, 100, 300), (500, 600, 300), (64, 64, 9000), (6, 13, 7, 40)], ids=str)
@pytest.mark.parametrize("d", [dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.int8], ids=lambda d: d.name)
def test_texts_compile_for_other_machines(size: tuple[int, ...], d: dtypes.dtype, name: str, register: str, multiply_add: str) -> None:
    target = Target.named(name, 4)
    m, n, k, *items = size
    graph = Graph(target=target)
    shapes = [(*items, *shape) for shape in ((m, k), (k, n), (m, n))]
    ids = [graph.add_value(Value(shape, d, contiguous_strides(shape))) for shape in shapes]
    graph.nodes.append(Node("matmul", (ids[0], ids[1]), (ids[2],)))
    multiplied = False
    for kernel in matmul.make_matmul(graph, 0):
        assert "matmul:tiles" not in kernel.key
        for text in (kernel.emit(target), *(word.emit(target) for word in kernel.words if isinstance(word, Function))):
            assert f'"prefer-vector-width"="{target.vector_bits}"' in text
            assembly = jit.assembly(text, target)
            assert "zmm" not in assembly and "llvm." not in assembly.replace(".llvm.", "")
            multiplied = multiplied or (multiply_add in assembly and register in assembly)
    assert multiplied or not d.is_floating_point
