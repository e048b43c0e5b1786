"""Convolutions, their gradients and pooling against PyTorch: `python benchmarks/convolution.py [--threads 1 2]
[--only NAME]`.

Each line: best and median time of alternating runs, GFLOP/s of the best (multiplications with the padding count, except
in input gradients), PyTorch's, and the median ratio. The first lines are the layers of PyTorch's MNIST example at batch
64. The kernels are called through the plan's native runner, PyTorch through its operators.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from matmul import measure, peak
from programs import aligned, bind

from flambeau import dtypes
from flambeau.compiler.graph import Graph, Node, Value, contiguous_strides
from flambeau.compiler.kernels.convolution import make_convolution
from flambeau.compiler.kernels.pool import make_pool
from flambeau.runtime import threads
from flambeau.runtime.runner import Program

# name: N, C, H, W, O, kernel, stride, padding, groups
CONVOLUTIONS = {
    "mnist conv1": (64, 1, 28, 28, 32, 3, 1, 0, 1),
    "mnist conv2": (64, 32, 26, 26, 64, 3, 1, 0, 1),
    "3x3 64 at 56": (32, 64, 56, 56, 64, 3, 1, 1, 1),
    "3x3 128 at 28": (32, 128, 28, 28, 128, 3, 1, 1, 1),
    "3x3 256 at 14": (32, 256, 14, 14, 256, 3, 1, 1, 1),
    "3x3 512 at 7": (32, 512, 7, 7, 512, 3, 1, 1, 1),
    "3x3 stride 2": (32, 64, 56, 56, 128, 3, 2, 1, 1),
    "1x1 256-64": (32, 256, 56, 56, 64, 1, 1, 0, 1),
    "7x7 stride 2": (8, 3, 224, 224, 64, 7, 2, 3, 1),
    "depthwise 3x3": (8, 128, 56, 56, 128, 3, 1, 1, 128),
}
# name: N, C, H, W, kernel, stride, padding
POOLS = {"mnist pool": (64, 64, 24, 24, 2, 2, 0), "3x3 stride 2 at 112": (8, 64, 112, 112, 3, 2, 1)}


def node(
    op: str,
    operands: list[np.ndarray[Any, Any]],
    outs: list[tuple[tuple[int, ...], dtypes.dtype]],
    attrs: dict[str, Any],
) -> Program:
    """A program of one node of contiguous operands; its time to compile is printed by `main`."""
    graph = Graph()
    ids = [graph.add_value(Value(a.shape, dtypes.BY_NAME[a.dtype.name], contiguous_strides(a.shape))) for a in operands]
    results = [graph.add_value(Value(shape, d, contiguous_strides(shape))) for shape, d in outs]
    graph.nodes.append(Node(op, tuple(ids), tuple(results), tuple(sorted(attrs.items()))))
    arrays = dict(zip(ids, operands, strict=True))
    for i, (shape, d) in zip(results, outs, strict=True):
        arrays[i] = aligned(int(np.prod(shape)), d)
    kernels = make_pool(graph, 0) if "pool" in op else make_convolution(graph, 0)
    program, keep = bind(graph, kernels, arrays)
    program.held_by_benchmark = keep  # type: ignore[attr-defined]
    return program


def array(*shape: int) -> np.ndarray[Any, Any]:
    return aligned(int(np.prod(shape)), dtypes.float32).reshape(shape)


def convolution(torch: Any, case: tuple[int, ...]) -> list[tuple[str, float, Program, Callable[[], object] | None]]:
    """(name, GFLOP, ours, PyTorch's) of the forward convolution and both gradients."""
    n, c, h, w, o, k, s, p, groups = case
    out = [(size + 2 * p - k) // s + 1 for size in (h, w)]
    x, weight, g = array(n, c, h, w), array(o, c // groups, k, k), array(n, o, *out)
    attrs = {"stride": (s, s), "padding": (p, p), "dilation": (1, 1), "groups": groups}
    gflop = 2 * g.size * (c // groups) * k * k / 1e9
    d = dtypes.float32
    ours = [
        ("forward", node("convolution", [x, weight], [(g.shape, d)], attrs)),
        ("input gradient", node("convolution_input_gradient", [g, weight], [(x.shape, d)], attrs | {"shape": x.shape})),
        (
            "weight gradient",
            node("convolution_weight_gradient", [g, x], [(weight.shape, d)], attrs | {"shape": weight.shape}),
        ),
    ]
    theirs: list[Callable[[], object] | None] = [None] * 3
    if torch is not None:
        tx, tw, tg = (torch.from_numpy(a) for a in (x, weight, g))

        def backward(*wanted: bool) -> Callable[[], object]:
            return lambda: torch.ops.aten.convolution_backward(tg, tx, tw, None, [s, s], [p, p], [1, 1], False, [0, 0], groups, list(wanted))

        theirs = [
            lambda: torch.conv2d(tx, tw, None, s, p, 1, groups),
            backward(True, False, False),
            backward(False, True, False),
        ]
    return [(name, gflop, program, other) for (name, program), other in zip(ours, theirs, strict=True)]


def pool(torch: Any, case: tuple[int, ...]) -> list[tuple[str, float, Program, Callable[[], object] | None]]:
    """(name, 0, ours, PyTorch's) of maximum pooling, average pooling and their gradients."""
    n, c, h, w, k, s, p = case
    y = (n, c, *((size + 2 * p - k) // s + 1 for size in (h, w)))
    x, g = array(n, c, h, w), array(*y)
    d = dtypes.float32
    attrs = {"kernel": (k, k), "stride": (s, s), "padding": (p, p), "dilation": (1, 1)}
    average = attrs | {"count_include_pad": True, "divisor": 0}
    index = np.zeros(y, np.int64)  # all gradients to the first pixel: PyTorch is given the same
    found = [
        ("max", node("max_pool", [x], [(y, d), (y, dtypes.int64)], attrs | {"shape": y})),
        ("max gradient", node("max_pool_gradient", [g, index], [(x.shape, d)], attrs | {"shape": x.shape})),
        ("average", node("average_pool", [x], [(y, d)], average | {"shape": y})),
        ("average gradient", node("average_pool_gradient", [g], [(x.shape, d)], average | {"shape": x.shape})),
    ]
    theirs: list[Callable[[], object] | None] = [None] * 4
    if torch is not None:
        tx, tg, ti = (torch.from_numpy(a) for a in (x, g, index))
        aten = torch.ops.aten
        theirs = [
            lambda: torch.nn.functional.max_pool2d(tx, k, s, p, return_indices=True),
            lambda: aten.max_pool2d_with_indices_backward(tg, tx, [k, k], [s, s], [p, p], [1, 1], False, ti),
            lambda: torch.nn.functional.avg_pool2d(tx, k, s, p),
            lambda: aten.avg_pool2d_backward(tg, tx, [k, k], [s, s], [p, p], False, True, None),
        ]
    return [(name, 0.0, program, other) for (name, program), other in zip(found, theirs, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=float, default=0.6, help="for each line")
    parser.add_argument("--only", default="", help="part of a case's name")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        torch = None
    print(f"one core's peak: {peak():.0f} GFLOP/s in float32")
    for count in options.threads:
        threads.set_num_threads(count)
        if torch is not None:
            torch.set_num_threads(count)
        for make, cases in ((convolution, CONVOLUTIONS), (pool, POOLS)):
            for name, case in cases.items():
                if options.only not in name:
                    continue
                start = time.perf_counter()
                lines = make(torch, case)  # type: ignore[operator]
                print(
                    f"{count} thread{'s' * (count > 1)} {name} (made in {time.perf_counter() - start:.2f} s)",
                    flush=True,
                )
                for what, gflop, program, other in lines:
                    functions: list[Callable[[], object]] = [lambda program=program: program.run(())]  # type: ignore[misc]
                    if other is not None:
                        functions.append(other)
                    times = measure(functions, 1, options.seconds)
                    texts = []
                    for found in times:
                        rate = f" {gflop / min(found):5.0f} GFLOP/s" if gflop else ""
                        texts.append(f"{min(found) * 1e3:7.2f} (median {np.median(found) * 1e3:7.2f}) ms{rate}")
                    if other is not None:
                        texts[1] = f"torch {texts[1]}  x{np.median(np.array(times[1]) / np.array(times[0])):.2f}"
                    print(f"    {what:16s}" + "   ".join(texts), flush=True)


if __name__ == "__main__":
    main()
