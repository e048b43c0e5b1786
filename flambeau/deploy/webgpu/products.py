"""Matrix products and convolutions as shaders, with what follows them on the elements of their result.

All are one product c[z, m, n] = sum over k of a[z, m, k] b[z, k, n], whose operands are read by two functions: a convolution is the product of its weights with
the patches of images, which are never written down. `tiled`: 256 threads compute a block of up to 64 x 64 elements from blocks of the operands in the
workgroup's memory. `along`: one element for each workgroup, whose threads share the terms: for few elements of many terms. `alone`: one for each thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from flambeau.compiler.fuse import Group
from flambeau.compiler.graph import CODED_BLOCK, Graph, Value
from flambeau.compiler.lower import epilogue_body
from flambeau.compiler.lower.spec import Reduce
from flambeau.deploy.errors import BuildError
from flambeau.deploy.webgpu.loops import Statements
from flambeau.deploy.webgpu.shader import LANES, TYPES, Kernel, Memory, Shader
from flambeau.symbols import Sym, roughly, roughly_over

SIDE: Final = 16  # threads of a tile in each direction
DEPTH: Final = 16  # terms that are in the workgroup's memory at a time
FEW: Final = 1 << 13  # elements of a result up to which the terms of each are shared by a workgroup
LONG: Final = 48  # terms from which sharing them pays

Element = Callable[[Shader, str, str, str], str]


@dataclass
class _Operand:
    """`element(shader, where its batch begins, index, index)`: an expression; `deep`: whether its terms are neighbours in memory; `begins(shader, batch)`."""

    element: Element
    deep: bool
    begins: Callable[[Shader, str], str] = lambda sh, z: z


@dataclass
class _Problem:
    """One product: a[z, m, k] times b[z, k, n], in the type `kind`. `finish(shader, z, m, n, value)`: what is done with a result."""

    batches: Any
    rows: Any
    columns: Any
    depth: Any
    kind: str
    left: _Operand
    right: _Operand
    finish: Callable[[Shader, str, str, str, str], None]


def matmul(memory: Memory, group: Group) -> Kernel:
    """The kernel of a matrix product's group."""
    graph = memory.graph
    assert group.head is not None
    node = graph.nodes[group.head]
    a, b, out = graph.values[node.inputs[0]], graph.values[node.inputs[1]], graph.values[node.outputs[0]]
    leading = out.shape[:-2]

    def operand(number: int, v: Value, deep: int) -> _Operand:
        root = graph.root(number)

        def element(sh: Shader, first: str, row: str, column: str) -> str:
            return sh.load(root, v.dtype, sh.sum([(first, 1), (row, v.strides[-2]), (column, v.strides[-1])]))

        def begins(sh: Shader, z: str) -> str:
            return sh.let(sh.sum(list(zip(sh.split(z, leading), v.strides[:-2], strict=True)), sh.number(v.offset)), "b")

        return _Operand(element, _is_one(v.strides[deep]), begins)

    def finish(sh: Shader, z: str, m: str, n: str, value: str) -> None:
        _finish(sh, graph, group, [*sh.split(z, leading), m, n], value)

    kind = TYPES.get(out.dtype.name, "")
    if kind not in ("f32", "i32") or a.dtype is not b.dtype:
        raise BuildError(f"a product of {a.dtype} and {b.dtype} is not there in WGSL yet; convert both to float32")
    operands = operand(node.inputs[0], a, -1), operand(node.inputs[1], b, -2)
    p = _Problem(prod(leading), out.shape[-2], out.shape[-1], a.shape[-1], kind, *operands, finish)
    return _kernel(memory, "matmul", p)


def convolution(memory: Memory, group: Group) -> Kernel:
    """The kernel of a convolution's group: of each image of a batch, weights (O / groups, C / groups KH KW) times patches."""
    graph = memory.graph
    assert group.head is not None
    node = graph.nodes[group.head]
    x, w, out = graph.values[node.inputs[0]], graph.values[node.inputs[1]], graph.values[node.outputs[0]]
    roots = graph.root(node.inputs[0]), graph.root(node.inputs[1])
    (sy, sx), (py, px), (dy, dx), groups = (node.attr(name) for name in ("stride", "padding", "dilation", "groups"))
    _, inner, high, wide = w.shape
    height, width = x.shape[-2:]
    outer, lines, pixels = out.shape[1] // groups, out.shape[2], out.shape[3]

    def left(sh: Shader, z: str, m: str, k: str) -> str:
        c, y, q = sh.split(k, (inner, high, wide))
        number = m if groups == 1 else f"({z} * {sh.number(outer)} + {m})"
        return sh.load(roots[1], w.dtype, sh.sum([(number, w.strides[0]), (c, w.strides[1]), (y, w.strides[2]), (q, w.strides[3])], sh.number(w.offset)))

    def right(sh: Shader, z: str, k: str, n: str) -> str:
        c, y, q = sh.split(k, (inner, high, wide))
        image, line, pixel = sh.split(n, (out.shape[0], lines, pixels))
        at_y = sh.let(f"{line} * {sh.number(sy)} + {y} * {sh.number(dy)} - {sh.number(py)}")
        at_x = sh.let(f"{pixel} * {sh.number(sx)} + {q} * {sh.number(dx)} - {sh.number(px)}")
        channel = c if groups == 1 else f"({z} * {sh.number(inner)} + {c})"
        element = sh.sum([(image, x.strides[0]), (channel, x.strides[1]), (at_y, x.strides[2]), (at_x, x.strides[3])], sh.number(x.offset))
        value = sh.fresh("x")
        sh.line(f"var {value}: f32 = 0.0;")
        with sh.block(f"if ({at_y} >= 0 && {at_y} < {sh.number(height)} && {at_x} >= 0 && {at_x} < {sh.number(width)})"):
            sh.line(f"{value} = {sh.load(roots[0], x.dtype, element)};")
        return value

    def finish(sh: Shader, z: str, m: str, n: str, value: str) -> None:
        image, line, pixel = sh.split(n, (out.shape[0], lines, pixels))
        channel = m if groups == 1 else sh.let(f"{z} * {sh.number(outer)} + {m}")
        _finish(sh, graph, group, [image, channel, line, pixel], value)

    if out.dtype.name != "float32":
        raise BuildError(f"a convolution of {out.dtype} is not there in WGSL yet; convert it to float32")
    p = _Problem(groups, outer, out.shape[0] * lines * pixels, inner * high * wide, "f32", _Operand(left, True), _Operand(right, False), finish)
    return _kernel(memory, "convolution", p)


def coded(memory: Memory, group: Group) -> Kernel:
    """The kernel of a product with a weight of 8 or 4 bits, whose codes are decoded as they are read."""
    graph = memory.graph
    node = graph.nodes[group.nodes[0]]
    x, codes, scales, zeros = (graph.values[i] for i in node.inputs)
    out = graph.values[node.outputs[0]]
    roots = [graph.root(i) for i in node.inputs]
    bits, width = node.attr("code_bits"), node.attr("group")
    half = min(CODED_BLOCK, width) // 2

    def left(sh: Shader, z: str, m: str, k: str) -> str:
        return sh.load(roots[0], x.dtype, sh.sum([(m, x.strides[0]), (k, x.strides[1])], sh.number(x.offset)))

    def right(sh: Shader, z: str, k: str, n: str) -> str:
        byte, high = (k, "") if bits == 8 else (f"({k} / {2 * half} * {half} + {k} % {half})", sh.let(f"select(0u, 4u, {k} % {2 * half} >= {half})"))
        code = sh.load(roots[1], codes.dtype, sh.sum([(n, codes.strides[0]), (byte, codes.strides[1])], sh.number(codes.offset)))
        code = code if bits == 8 else f"(({code} >> {high}) & 15)"
        of_group = sh.let(f"{k} / {width}")
        zero, scale = (sh.load(root, v.dtype, sh.sum([(n, v.strides[0]), (of_group, v.strides[1])], sh.number(v.offset)))
                       for root, v in zip(roots[2:][::-1], (zeros, scales), strict=True))  # fmt: skip
        return sh.let(f"(f32({code}) - {zero}) * {scale}")

    def finish(sh: Shader, z: str, m: str, n: str, value: str) -> None:
        sh.store(node.outputs[0], out.dtype, sh.sum([(m, out.strides[0]), (n, out.strides[1])]), value)

    p = _Problem(1, out.shape[0], out.shape[1], x.shape[1], "f32", _Operand(left, _is_one(x.strides[1])), _Operand(right, True), finish)
    return _kernel(memory, "coded_matmul", p)


def _is_one(stride: Any) -> bool:
    return not isinstance(stride, Sym) and bool(stride == 1)


def _finish(sh: Shader, graph: Graph, group: Group, at: Sequence[str], value: str) -> None:
    """Store an element of a contraction's result, or what the rest of the group makes of it. `at`: names of its indices."""
    assert group.head is not None and group.domain is not None
    head = graph.nodes[group.head].outputs[0]
    v = graph.values[head]
    if head in group.outputs or len(group.nodes) == 1:
        sh.store(head, v.dtype, sh.sum(list(zip(at, v.strides, strict=True))), value)
    if len(group.nodes) == 1:
        return
    domain = group.domain
    index: dict[int, str] = {}
    for name, loops in zip(at, domain.where[head], strict=True):
        for loop, part in zip(loops, sh.split(name, [domain.sizes[x] for x in loops]), strict=True):
            index[loop] = part
    index |= {loop: "0" for loop in domain.sizes if loop not in index}
    body = epilogue_body(graph, group)
    statements = Statements(sh, body, index, {head: value})
    for block in body.blocks:
        assert not any(isinstance(s, Reduce) for s in block.body)
        for s in block.body:
            statements.write(s)


def _kernel(memory: Memory, name: str, p: _Problem) -> Kernel:
    elements = p.batches * p.rows * p.columns
    if not roughly_over(p.depth, LONG) and (not roughly_over(p.rows, 7) or not roughly_over(p.depth, 7)):
        return _alone(Shader(name, memory, LANES), p, elements)
    if not roughly_over(elements, FEW) and roughly_over(p.depth, LONG) and (not roughly_over(p.rows, 3) or not roughly_over(p.columns, 3)):
        return _along(Shader(name, memory, LANES), p, elements)
    return _tiled(Shader(name, memory, SIDE * SIDE), p)


def _terms(sh: Shader, p: _Problem, z: str, m: str, n: str, start: str, step: int) -> str:
    """The sum of every `step`th term from `start` on: a variable."""
    total, k = sh.fresh("sum"), sh.fresh("k")
    left, right = _begun(sh, p.left, z), _begun(sh, p.right, z)
    sh.line(f"var {total} = {p.kind}(0);")
    with sh.block(f"for (var {k} = {start}; {k} < {sh.number(p.depth)}; {k} += {step})"):
        a = sh.let(left(m, k))
        sh.line(f"{total} += {a} * {right(k, n)};")
    return total


def _begun(sh: Shader, operand: _Operand, z: str) -> Callable[[str, str], str]:
    """The function of an operand's elements in batch `z`."""
    first = operand.begins(sh, z)
    return lambda x, y: operand.element(sh, first, x, y)


def _alone(sh: Shader, p: _Problem, elements: Any) -> Kernel:
    sh.line(f"let point = group * {LANES} + lane;")
    with sh.block(f"if (point < {sh.number(elements)})"):
        z, m, n = sh.split("point", (p.batches, p.rows, p.columns))
        p.finish(sh, z, m, n, _terms(sh, p, z, m, n, "0", 1))
    return sh.finish(-(-elements // LANES))


def _along(sh: Shader, p: _Problem, elements: Any) -> Kernel:
    sh.line(f"if (group >= {sh.number(elements)}) {{ return; }}")
    z, m, n = sh.split("group", (p.batches, p.rows, p.columns))
    total = _terms(sh, p, z, m, n, "lane", LANES)
    sh.shared["part"] = f"var<workgroup> part: array<{p.kind}, {LANES}>;"
    sh.line(f"part[lane] = {total};")
    sh.line("workgroupBarrier();")
    with sh.block(f"for (var s = {LANES // 2}; s > 0; s = s / 2)"):
        sh.line("if (lane < s) { part[lane] += part[lane + s]; }")
        sh.line("workgroupBarrier();")
    with sh.block("if (lane == 0)"):
        p.finish(sh, z, m, n, "part[0]")
    return sh.finish(elements)


def _tiled(sh: Shader, p: _Problem) -> Kernel:
    each = [4 if roughly(n) > 2 * SIDE else 2 if roughly(n) > SIDE else 1 for n in (p.rows, p.columns)]
    high, wide = each[0] * SIDE, each[1] * SIDE
    down, across = -(-p.rows // high), -(-p.columns // wide)
    sh.shared["tiles"] = f"var<workgroup> tile_a: array<{p.kind}, {DEPTH * high}>;\nvar<workgroup> tile_b: array<{p.kind}, {DEPTH * wide}>;"
    groups = p.batches * down * across
    sh.line(f"if (group >= {sh.number(groups)}) {{ return; }}")
    z, block_m, block_n = sh.split("group", (p.batches, down, across))
    left, right = _begun(sh, p.left, z), _begun(sh, p.right, z)
    m0, n0 = sh.let(f"{block_m} * {high}"), sh.let(f"{block_n} * {wide}")
    sh.line(f"let my = lane / {SIDE};")
    sh.line(f"let mx = lane % {SIDE};")
    sums = [[f"c{i}_{j}" for j in range(each[1])] for i in range(each[0])]
    for name in (s for row in sums for s in row):
        sh.line(f"var {name} = {p.kind}(0);")
    rows, columns, depth = sh.number(p.rows), sh.number(p.columns), sh.number(p.depth)
    with sh.block(f"for (var k0 = 0; k0 < {depth}; k0 += {DEPTH})"):
        for tile, count, first, most, deep, element in (("a", each[0], m0, rows, p.left.deep, left), ("b", each[1], n0, columns, p.right.deep, right)):
            side = count * SIDE
            with sh.block(f"for (var e = lane; e < {DEPTH * side}; e += {SIDE * SIDE})"):
                # Threads that are neighbours read neighbours.
                sh.line(f"let kk = {f'e % {DEPTH}' if deep else f'e / {side}'};")
                sh.line(f"let ss = {f'e / {DEPTH}' if deep else f'e % {side}'};")
                sh.line("let k = k0 + kk;")
                sh.line(f"let s = {first} + ss;")
                sh.line(f"var held = {p.kind}(0);")
                with sh.block(f"if (k < {depth} && s < {most})"):
                    sh.line(f"held = {element('s', 'k') if tile == 'a' else element('k', 's')};")
                sh.line(f"tile_{tile}[kk * {side} + ss] = held;")
        sh.line("workgroupBarrier();")
        with sh.block(f"for (var kk = 0; kk < {DEPTH}; kk += 1)"):
            for i in range(each[0]):
                sh.line(f"let a{i} = tile_a[kk * {high} + my + {i * SIDE}];")
            for j in range(each[1]):
                sh.line(f"let b{j} = tile_b[kk * {wide} + mx + {j * SIDE}];")
            for i, row in enumerate(sums):
                for j, name in enumerate(row):
                    sh.line(f"{name} += a{i} * b{j};")
        sh.line("workgroupBarrier();")
    for i, row in enumerate(sums):
        for j, name in enumerate(row):
            with sh.block(f"if ({m0} + my + {i * SIDE} < {rows} && {n0} + mx + {j * SIDE} < {columns})"):
                m, n = sh.let(f"{m0} + my + {i * SIDE}"), sh.let(f"{n0} + mx + {j * SIDE}")
                p.finish(sh, z, m, n, name)
    return sh.finish(groups)
