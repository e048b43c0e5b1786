"""Matrix products against PyTorch and against the processor's peak: `python benchmarks/matmul.py [--threads 1 2]
[--quick]`.

Each line: the best and the median of alternating runs, in GFLOP/s; the ratio of the medians to PyTorch's (where it is
installed); and the share of the peak, measured just before as a loop of independent fused multiply-adds on one core.
The kernels are called through the plan's native runner, PyTorch through `torch.mm(out=)`.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable

import numpy as np
from programs import aligned, bind

from flambeau import dtypes
from flambeau.compiler.graph import Graph, Node, Value
from flambeau.compiler.kernels.matmul import make_matmul
from flambeau.runtime import jit, target, threads
from flambeau.runtime.runner import Program

# (m, n, k, a transposed, b transposed): squares; a linear layer's forward, input gradient and weight gradient; a GPT's
SIZES = [
    (256, 256, 256, False, False), (512, 512, 512, False, False), (1024, 1024, 1024, False, False),
    (2048, 2048, 2048, False, False), (1024, 1024, 1024, False, True), (1024, 1024, 1024, True, False),
    (256, 256, 784, False, True), (256, 128, 256, False, True), (256, 10, 128, False, True),
    (256, 784, 256, False, False), (256, 784, 256, True, False), (128, 256, 256, True, False),
    (10, 128, 256, True, False),
    (32, 256, 784, False, True), (32, 128, 256, False, True), (32, 10, 128, False, True), (256, 784, 32, True, False),
    (1, 256, 784, False, True), (1, 784, 256, False, False), (4, 256, 784, False, True), (1, 4096, 4096, False, True),
    (1, 4096, 4096, False, False), (4096, 1, 4096, False, False), (1000, 1000, 1, False, False),
    (768, 2304, 768, False, True), (768, 3072, 768, False, True), (768, 768, 3072, False, True),
    (64, 64, 32, False, True),
]  # fmt: skip


def product(m: int, n: int, k: int, ta: bool, tb: bool, d: dtypes.dtype) -> tuple[Program, list[np.ndarray]]:
    """The product as a program that runs without inputs, and its arrays a, b, c."""
    graph = Graph()
    a = graph.add_value(Value((m, k), d, (1, m) if ta else (k, 1)))
    b = graph.add_value(Value((k, n), d, (1, k) if tb else (n, 1)))
    c = graph.add_value(Value((m, n), d, (n, 1)))
    graph.nodes.append(Node("matmul", (a, b), (c,)))
    arrays = {a: aligned(m * k, d), b: aligned(k * n, d), c: aligned(m * n, d)}
    return bind(graph, make_matmul(graph, 0), arrays)


def peak() -> float:
    """GFLOP/s of one core in float32: 20 chains of fused multiply-adds."""
    width = target.vector_bits() // 32
    v, suffix = f"<{width} x float>", f"v{width}f32"
    chains = range(12 if width < 16 else 20)
    key = f"benchmark:peak:{width}"
    lines = [
        f"define i64 @{jit.symbol(key)}(i64 %n, ptr %p) #0 {{",
        "entry:",
        f"  %x = load volatile {v}, ptr %p",
        "  br label %l",
        "l:",
    ]
    lines.append("  %i = phi i64 [0, %entry], [%i1, %l]")
    lines += [f"  %a{j} = phi {v} [zeroinitializer, %entry], [%b{j}, %l]" for j in chains]
    lines += [f"  %b{j} = call {v} @llvm.fma.{suffix}({v} %x, {v} %x, {v} %a{j})" for j in chains]
    lines += ["  %i1 = add i64 %i, 1", "  %c = icmp slt i64 %i1, %n", "  br i1 %c, label %l, label %d", "d:"]
    lines += [f"  store volatile {v} %b{j}, ptr %p" for j in chains]
    lines += [
        "  ret i64 0",
        "}",
        f"declare {v} @llvm.fma.{suffix}({v}, {v}, {v})",
        'attributes #0 = { "prefer-vector-width"="512" }',
    ]
    f = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(jit.function(key, lambda: "\n".join(lines)))
    memory = aligned(64, dtypes.float32)
    steps = 100_000
    best = min(_time(lambda: f(steps, memory.ctypes.data)) for _ in range(50))
    return steps * len(chains) * width * 2 / best / 1e9


def _time(f: Callable[[], object]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def measure(functions: list[Callable[[], object]], repeats: int, seconds: float) -> list[list[float]]:
    """Seconds a call of each function, from alternating rounds of `repeats` calls."""
    times: list[list[float]] = [[] for _ in functions]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for f, into in zip(functions, times, strict=True):
            start = time.perf_counter()
            for _ in range(repeats):
                f()
            into.append((time.perf_counter() - start) / repeats)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=0.6, help="for each line")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--quick", action="store_true", help="only the squares up to 1024")
    options = parser.parse_args()
    d = dtypes.BY_NAME[options.dtype]
    try:
        import torch
    except ImportError:
        torch = None
    top = peak()
    print(f"one core's peak: {top:.0f} GFLOP/s in float32")
    for count in options.threads:
        threads.set_num_threads(count)
        if torch is not None:
            torch.set_num_threads(count)
        for m, n, k, ta, tb in SIZES[:3] if options.quick else SIZES:
            program, keep = product(m, n, k, ta, tb, d)
            functions: list[Callable[[], object]] = [lambda program=program: program.run(())]  # type: ignore[misc]
            if torch is not None:
                a, b = (torch.from_numpy(array).view(getattr(torch, d.name)) for array in keep[:2])
                a = a.reshape(k, m).T if ta else a.reshape(m, k)
                b = b.reshape(n, k).T if tb else b.reshape(k, n)
                c = torch.empty(m, n, dtype=a.dtype)
                functions.append(lambda a=a, b=b, c=c: torch.mm(a, b, out=c))  # type: ignore[misc]
            flops = 2 * m * n * k / 1e9
            times = measure(functions, max(1, int(2e-3 / (flops / 100 + 2e-6))), options.seconds)
            name = f"{m}x{n}x{k}{' a.T' * ta}{' b.T' * tb}"
            text = f"{count} thread{'s' * (count > 1)} {name:22s}"
            middle = np.median(times[0])
            text += f" {flops / min(times[0]):7.1f} (median {flops / middle:6.1f}) {middle * 1e6:9.1f} us"
            if torch is not None:
                ratio = np.median(np.array(times[1]) / np.array(times[0]))
                text += f"  torch {flops / min(times[1]):7.1f} (median {flops / np.median(times[1]):6.1f})  x{ratio:.2f}"
            print(text + f"  {flops / min(times[0]) / (top * count) * 100 * (d.itemsize / 4):3.0f} % of peak", flush=True)


if __name__ == "__main__":
    main()
