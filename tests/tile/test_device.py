"""Tile programs for GPUs: run here by threads of ours, and assembled by NVIDIA's assembler where it is installed."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

import flambeau
import flambeau.nn.functional as F
import flambeau.tile as tl
from flambeau.compiler.pipeline import compile_graph
from flambeau.runtime.target import DEVICES, Target
from tests import processes
from tests.graphs import GraphBuilder
from tests.tile import emulated, kernels


@tl.jit
def biased(a, b, bias, c, K, N: tl.constexpr, BK: tl.constexpr):
    """A product whose right operand lies transposed, with what is broadcast added: a loop, permuted blocks, a block read by columns."""
    i, j, at = tl.arange(0, 16), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((16, N), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + i[:, None] * K + (k + at)[None, :], mask=(k + at)[None, :] < K, other=0.0)
        right = tl.load(b + j[:, None] * K + (k + at)[None, :], mask=(k + at)[None, :] < K, other=0.0)
        total += tl.dot(left, tl.trans(right))
    extra = tl.load(bias + j) * 2.0
    tl.store(c + i[:, None] * N + j[None, :], tl.exp(-(total + extra[None, :])))


def launched(kernel, *args, grid, **constants):
    """A kernel's program and the words that a launch gives it."""
    found = kernel.warmup(*args, grid=grid, **constants)
    given = []
    bound = kernel._bound(args, constants)
    for name, value in bound.items():
        found._collect(name, value, given, name in kernel.constants)
    return found, [v.data_ptr() if hasattr(v, "data_ptr") else v for v in given]


def emulate(kernel, *args, grid, **constants):
    found, words = launched(kernel, *args, grid=grid, **constants)
    return emulated.run(found.kernel.program, words, (*grid, 1, 1)[:3])


@pytest.mark.parametrize("n", [1, 300, 1024])
def test_vector_add(n):
    x, y, out = flambeau.randn(n), flambeau.randn(n), flambeau.full((n + 3,), 7.0)
    emulate(kernels.add, x, y, out, n, grid=(tl.cdiv(n, 256),), BLOCK=256)
    assert flambeau.equal(out[:n], x + y)
    assert (out[n:] == 7.0).all()


@pytest.mark.parametrize("dtype", [flambeau.float32, flambeau.float16, flambeau.bfloat16])
@pytest.mark.parametrize("blocks", [(32, 32, 16), (16, 64, 32), (64, 16, 16)])
def test_products(dtype, blocks):
    M, N, K = 50, 37, 45
    a, b, c = flambeau.randn(M, K).to(dtype), flambeau.randn(K, N).to(dtype), flambeau.empty(M, N, dtype=dtype)
    BM, BN, BK = blocks
    grid = (tl.cdiv(M, BM) * tl.cdiv(N, BN),)
    count = emulate(kernels.matmul, a, b, c, M, N, K, K, 1, N, 1, N, 1, grid=grid, BM=BM, BN=BN, BK=BK, GROUP=2, ACTIVATION="relu")
    tolerance = 1e-4 if dtype is flambeau.float32 else 2e-2
    flambeau.testing.assert_close(c.float(), F.relu(a.float() @ b.float()), rtol=tolerance, atol=tolerance)
    assert (count > 0) == (dtype is not flambeau.float32)  # a float32 is not rounded to what the warps multiply


@pytest.mark.parametrize("dtype", [flambeau.float32, flambeau.bfloat16])
@pytest.mark.parametrize(("n", "bk"), [(8, 16), (32, 16), (32, 8)])
def test_turned_and_broadcast_blocks(dtype, n, bk):
    a, b, bias = flambeau.randn(16, 45).to(dtype), flambeau.randn(n, 45).to(dtype), flambeau.randn(n)
    c = flambeau.empty(16, n)
    emulate(biased, a, b, bias, c, 45, grid=(1,), N=n, BK=bk)
    flambeau.testing.assert_close(c, (-(a.float() @ b.float().t() + 2 * bias)).exp(), rtol=2e-4, atol=1e-4)


def test_what_has_no_form_is_told_by_the_line():
    x = flambeau.randn(4, 64)
    kernel = kernels.softmax.warmup(x, x, 64, 4, 64, grid=(1,), BLOCK=64)
    with pytest.raises(tl.CompilationError, match=r"reduce has no form on sm_90a") as caught:
        kernel.assembly("sm_90a")
    assert "tl.max(values, axis=0)" in str(caught.value)
    graph = GraphBuilder()
    graph.output(graph.op("exp", graph.input((3,), flambeau.float32)))
    with pytest.raises(ValueError, match="sm_80 is a GPU"):
        compile_graph(graph.graph, target=Target.device("sm_80"))


def _assembler() -> str | None:
    """NVIDIA's ptxas: of the package nvidia-cuda-nvcc, or on the path."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else spec.submodule_search_locations or []
    found = [str(path) for folder in folders for path in Path(folder).rglob("bin/ptxas")]
    return found[0] if found else shutil.which("ptxas")


@pytest.mark.parametrize("device", DEVICES)
def test_ptxas_takes_what_we_write(device, tmp_path):
    x = flambeau.zeros(64, 64, dtype=flambeau.bfloat16)
    y = flambeau.zeros(64, 64)
    found = {
        "add": kernels.add.warmup(y, y, y, 4096, grid=(1,), BLOCK=1024),
        "product": kernels.matmul.warmup(x, x, x, 64, 64, 64, 64, 1, 64, 1, 64, 1, grid=(1,), BM=64, BN=64, BK=32, GROUP=2, ACTIVATION="relu"),
    }
    texts = {name: kernel.assembly(device) for name, kernel in found.items()}
    assert all(f".target {device}" in text and ".visible .entry" in text for text in texts.values())
    assert "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" in texts["product"] and "mma.sync" not in texts["add"]
    assembler = _assembler()
    if assembler is None:
        pytest.skip("the assembler is not here: pip install nvidia-cuda-nvcc")
    for name, text in texts.items():
        (tmp_path / f"{name}.ptx").write_text(text)
        command = [assembler, f"-arch={device}", "-v", str(tmp_path / f"{name}.ptx"), "-o", str(tmp_path / f"{name}.cubin")]
        result = processes.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert (tmp_path / f"{name}.cubin").stat().st_size > 0
        assert "0 bytes spill stores" in result.stderr + result.stdout
