"""Shaders that choose or scan: rows and elements by index, windows of images, running sums. A thread computes an element, of a scan a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from flambeau.compiler.graph import Node, Value
from flambeau.deploy.errors import BuildError
from flambeau.deploy.webgpu import functions
from flambeau.deploy.webgpu.attention import is_read
from flambeau.deploy.webgpu.shader import LANES, TYPES, Kernel, Memory, Shader


def _each(memory: Memory, name: str, shape: Sequence[Any], write: Callable[[Shader, list[str]], None]) -> Kernel:
    """A thread for each index of a shape."""
    sh = Shader(name, memory, LANES)
    points = prod(shape)
    sh.line(f"let point = group * {LANES} + lane;")
    with sh.block(f"if (point < {sh.number(points)})"):
        write(sh, sh.split("point", shape))
    return sh.finish(-(-points // LANES))


def _element(sh: Shader, value: int, at: Sequence[str]) -> str:
    v = sh.memory.graph.values[value]
    return sh.load(sh.memory.graph.root(value), v.dtype, _place(sh, v, at))


def _place(sh: Shader, v: Value, at: Sequence[str]) -> str:
    return sh.sum(list(zip(at, v.strides, strict=True)), sh.number(v.offset))


def take_rows(memory: Memory, node: Node) -> Kernel:
    """x.shape[:dim] + index.shape + x.shape[dim + 1:]."""
    values, dim = memory.graph.values, node.attr("dim")
    x, index, out = values[node.inputs[0]], values[node.inputs[1]], values[node.outputs[0]]

    def write(sh: Shader, at: list[str]) -> None:
        sh.need("inside")
        own = at[dim : dim + len(index.shape)]
        row = sh.let(f"inside({_element(sh, node.inputs[1], own)}, {sh.number(x.shape[dim])})")
        sh.store(node.outputs[0], out.dtype, _place(sh, out, at), _element(sh, node.inputs[0], [*at[:dim], row, *at[dim + len(own) :]]))

    return _each(memory, "take_rows", out.shape, write)


def gather(memory: Memory, node: Node) -> Kernel:
    """Of each element of the index, that element of x along `dim`."""
    values, dim = memory.graph.values, node.attr("dim")
    x, out = values[node.inputs[0]], values[node.outputs[0]]

    def write(sh: Shader, at: list[str]) -> None:
        sh.need("inside")
        row = sh.let(f"inside({_element(sh, node.inputs[1], at)}, {sh.number(x.shape[dim])})")
        sh.store(node.outputs[0], out.dtype, _place(sh, out, at), _element(sh, node.inputs[0], [*at[:dim], row, *at[dim + 1 :]]))

    return _each(memory, "gather", out.shape, write)


def pool(memory: Memory, node: Node) -> Kernel:
    """The greatest element of a window, with its place if that is wanted, or the mean of a window."""
    graph = memory.graph
    x, out = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
    (ky, kx), (sy, sx), (py, px), (dy, dx) = (node.attr(name) for name in ("kernel", "stride", "padding", "dilation"))
    height, width = x.shape[-2:]
    greatest = node.op == "max_pool"
    if x.dtype.name != "float32":
        raise BuildError(f"{node.op} of {x.dtype} is not there in WGSL yet; convert it to float32")

    def write(sh: Shader, at: list[str]) -> None:
        image, channel, line, pixel = at
        start, calls = functions.identity("amax" if greatest else "sum", "f32")
        sh.need(*calls, *(("is_nan",) if greatest else ()))
        sh.line(f"var best = {start};")
        sh.line("var where_ = -1;")
        sh.line("var count = 0;")
        with sh.block(f"for (var a = 0; a < {sh.number(ky)}; a += 1)"), sh.block(f"for (var b = 0; b < {sh.number(kx)}; b += 1)"):
            sh.line(f"let y = {line} * {sh.number(sy)} - {sh.number(py)} + a * {sh.number(dy)};")
            sh.line(f"let x = {pixel} * {sh.number(sx)} - {sh.number(px)} + b * {sh.number(dx)};")
            with sh.block(f"if (y >= 0 && y < {sh.number(height)} && x >= 0 && x < {sh.number(width)})"):
                sh.line(f"let found = {_element(sh, node.inputs[0], [image, channel, 'y', 'x'])};")
                if greatest:
                    with sh.block("if (where_ < 0 || found > best || is_nan(found))"):
                        sh.line("best = found;")
                        sh.line(f"where_ = y * {sh.number(width)} + x;")
                else:
                    sh.line("best += found;")
            if not greatest and node.attr("count_include_pad"):  # what lies beyond the padding is not counted, as in PyTorch
                sh.line(f"if (y < {sh.number(height)} + {sh.number(py)} && x < {sh.number(width)} + {sh.number(px)}) {{ count += 1; }}")
            elif not greatest:
                sh.line(f"if (y >= 0 && y < {sh.number(height)} && x >= 0 && x < {sh.number(width)}) {{ count += 1; }}")
        divisor = "" if greatest else f" / f32({sh.number(node.attr('divisor'))})" if node.attr("divisor") else " / f32(count)"
        sh.store(node.outputs[0], out.dtype, _place(sh, out, at), f"best{divisor}")
        if greatest and is_read(graph, node.outputs[1]):
            index = graph.values[node.outputs[1]]
            sh.store(node.outputs[1], index.dtype, _place(sh, index, at), "where_")

    return _each(memory, node.op, out.shape, write)


_SCANS: Final = {"cumsum": "sum", "cumprod": "prod"}


def scan(memory: Memory, node: Node) -> Kernel:
    """Running sums and products: a thread goes along a row."""
    values = memory.graph.values
    x, out = values[node.inputs[0]], values[node.outputs[0]]
    dim, kind = node.attr("dim") % max(len(x.shape), 1), TYPES.get(x.dtype.name, "")
    if node.op not in _SCANS or kind not in ("f32", "i32"):
        raise BuildError(f"{node.op} of {x.dtype} is not there in WGSL yet: take it out of the model, or build it for wasm32")

    def write(sh: Shader, at: list[str]) -> None:
        start, _ = functions.identity(_SCANS[node.op], kind)
        sh.line(f"var total = {start};")
        with sh.block(f"for (var k = 0; k < {sh.number(x.shape[dim])}; k += 1)"):
            place = [*at[:dim], "k", *at[dim:]]
            sh.line(f"total = {functions.combine(_SCANS[node.op], kind, 'total', _element(sh, node.inputs[0], place))[0]};")
            sh.store(node.outputs[0], out.dtype, _place(sh, out, place), "total")

    return _each(memory, node.op, (*x.shape[:dim], *x.shape[dim + 1 :]), write)
