"""Matrix products for other machines: without a matrix unit, and texts that compile for AVX2 and AArch64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels import matmul
from flambeau.compiler.kernels.matmul_blocking import Machine
from flambeau.runtime import target, tiles
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


OTHERS = [
    # triple, processor, features, machine, what its vectors are called, its multiply-add
    ("x86_64-unknown-linux-gnu", "haswell", "", Machine(256, 16, 32 << 10, 256 << 10, 4), "ymm", "vfmadd"),
    ("aarch64-unknown-linux-gnu", "neoverse-n1", "", Machine(128, 32, 64 << 10, 1 << 20, 4), "\tv", "fmla"),
]


@pytest.fixture(params=OTHERS, ids=lambda other: other[1])
def other(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[object, Machine, str, str]]:
    from llvmlite import binding

    triple, processor, features, host, register, multiply_add = request.param
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        machine = binding.Target.from_triple(triple).create_target_machine(cpu=processor, features=features, opt=3, reloc="pic")
    except RuntimeError:
        pytest.skip(f"this LLVM has no {triple}")
    monkeypatch.setattr(matmul, "machine", lambda: host)
    monkeypatch.setattr(target, "vector_bits", lambda: host.vector_bits)
    monkeypatch.setattr(tiles, "dtypes", frozenset)
    yield machine, host, register, multiply_add


@pytest.mark.parametrize(
    "size", [(1, 300, 300), (4, 300, 300), (20, 300, 300), (100, 100, 300), (500, 600, 300), (64, 64, 9000), (6, 13, 7, 40)], ids=str
)
@pytest.mark.parametrize("d", [dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.int8], ids=lambda d: d.name)
def test_texts_compile_for_other_machines(
    other: tuple[object, Machine, str, str], size: tuple[int, ...], d: dtypes.dtype
) -> None:  # fmt: skip
    from llvmlite import binding

    from flambeau.compiler.graph import Graph, Node, Value, contiguous_strides

    machine, host, register, multiply_add = other
    m, n, k, *items = size
    graph = Graph()
    shapes = [(*items, *shape) for shape in ((m, k), (k, n), (m, n))]
    ids = [graph.add_value(Value(shape, d, contiguous_strides(shape))) for shape in shapes]
    graph.nodes.append(Node("matmul", (ids[0], ids[1]), (ids[2],)))
    multiplied = False
    for kernel in matmul.make_matmul(graph, 0):
        assert "matmul:tiles" not in kernel.key
        for text in (kernel.emit(), *(word.emit() for word in kernel.words if isinstance(word, Function))):
            assert f'"prefer-vector-width"="{host.vector_bits}"' in text
            module = binding.parse_assembly(text, binding.create_context())
            module.verify()
            assembly = machine.emit_assembly(module)  # type: ignore[attr-defined]
            assert "zmm" not in assembly and "llvm." not in assembly.replace(".llvm.", "")
            multiplied = multiplied or (multiply_add in assembly and register in assembly)
    assert multiplied or not d.is_floating_point
