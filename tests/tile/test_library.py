"""Kernels of the library that are tile programs (flambeau/tile/kernels): compiled they are what the interpreter, the specification, says, bit for bit."""

from __future__ import annotations

import ctypes

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau.tile as tl
from flambeau.compiler.kernels.matmul_small import height_of
from flambeau.compiler.kernels.tiled import program_of
from flambeau.compiler.tile import interpret, unit
from flambeau.compiler.tile.ir import Pointer, TileError, Type
from flambeau.dtypes import BY_NAME, float32, int64
from flambeau.runtime import jit
from flambeau.runtime.target import Target
from flambeau.tile.functions import expanded


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 11), st.integers(0, 9), st.integers(1, 40), st.sampled_from(["float32", "float64", "int32", "int64"]),
    st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_small_products(outer: int, inner: int, m: int, k: int, n: int, name: str, shared: bool, seed: int) -> None:
    """A batch of two dims; `shared`: one left operand for all items of the inner one."""
    numbers = numpy.random.default_rng(seed)
    a, b = ((numbers.standard_normal((outer, inner, *shape)) * 9).astype(name) for shape in ((m, k), (k, n)))
    lanes = Target.host().vector_bits // (8 * a.itemsize)
    vectors = min(4, -(-n // lanes))
    n = min(n, vectors * lanes)
    arguments = {x: Type(Pointer(BY_NAME[name])) for x in "abc"} | {x: Type(int64) for x in "m n k a_row a_column b_row c_row".split()}
    constants = {"HEIGHT": min(m, height_of(m, vectors, 32)), "VECTORS": vectors, "LANES": lanes}
    program = program_of("products.small", {**arguments, "batch": ((Type(int64),) * 4,) * 2, **constants})
    key = f"test:small:{name}:{constants}"
    code = jit.function(key, lambda: unit.lower(program, Target.host(), jit.symbol(key)))
    found, wanted = (numpy.full((outer, inner, m, n + 1), 77, name) for _ in range(2))
    batch = [outer, inner * m * k, inner * b.shape[2] * b.shape[3], inner * m * (n + 1), inner, 0 if shared else m * k, b.shape[2] * b.shape[3], m * (n + 1)]
    for c in (found, wanted):
        words = [x.ctypes.data for x in (a, b, c)] + [m, n, k, k, 1, b.shape[3], n + 1, *batch]
        if c is wanted:
            interpret.run(program, words, (outer * inner, 1, 1), interpret.Memory([(x.ctypes.data, x.nbytes) for x in (a, b, c)]))
        else:
            signature = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 3)
            assert signature(code)(ctypes.addressof((ctypes.c_int64 * len(words))(*words)), 0, outer * inner, 0) == 0
    assert found.tobytes() == wanted.tobytes() and (found[..., n] == 77).all()
    left = a[:, :1] if shared else a
    assert numpy.allclose(found[..., :n], left @ b[..., :n], rtol=1e-4, atol=1e-3)


@tl.jit
def summed(out, x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0))


@tl.jit
def counted(out):
    tl.store(out, tl.num_programs(0))


@pytest.mark.parametrize(
    ("function", "names", "constants", "text"), [(summed, "out x", {"BLOCK": 4096}, "scratch memory"), (counted, "out", {}, "how many units")]
)
def test_what_a_kernel_of_a_plan_cannot_have(function: object, names: str, constants: dict[str, int], text: str) -> None:
    params = [(name, Type(Pointer(float32))) for name in names.split()]
    program = expanded(function, params, lambda left: {**dict(zip(names.split(), left, strict=True)), **constants})[0]  # type: ignore[arg-type]
    with pytest.raises(TileError, match=text):
        unit.lower(program, Target.host(), "symbol")
