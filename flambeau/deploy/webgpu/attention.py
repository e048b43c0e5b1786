"""Attention as one shader: a workgroup for each query, whose threads share the keys, 64 at a time, and then the features of the values.

The softmax runs along: with each block of keys the greatest score so far may grow, and what has been summed is scaled down to it. So scores are nowhere written
down, however many keys there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from flambeau.compiler.graph import Graph, Node
from flambeau.deploy.errors import BuildError
from flambeau.deploy.webgpu.shader import LANES, Kernel, Memory, Shader
from flambeau.symbols import Sym

_MOST: Final = 1024  # features of a head
_NOTHING: Final = "-3.0e38"  # scores below it are of keys that may not be attended


def attention(memory: Memory, node: Node) -> Kernel:
    """The kernel of an attention node."""
    graph = memory.graph
    q, k, v = (graph.values[i] for i in node.inputs[:3])
    out, lse = (graph.values[o] for o in node.outputs)
    features, made = q.shape[-1], v.shape[-1]
    if node.attr("dropout"):
        raise BuildError("attention drops weights out: export the model in eval mode")
    if q.dtype.name != "float32" or any(isinstance(n, Sym) or n > _MOST for n in (features, made)):
        raise BuildError(f"attention of {q.dtype} with {features} and {made} features is not there in WGSL yet: float32 with fixed numbers up to {_MOST} is")
    sh = Shader("attention", memory, LANES)
    leading, queries, keys = q.shape[:-2], q.shape[-2], k.shape[-2]
    points = prod(leading) * queries
    sh.shared["attention"] = f"var<workgroup> query: array<f32, {features}>;\nvar<workgroup> part: array<f32, {LANES}>;"
    sh.need("maximum")
    sh.line(f"if (group >= {sh.number(points)}) {{ return; }}")
    *at, row = sh.split("group", (*leading, queries))

    def element(value: int, x: str, y: str) -> str:
        t = graph.values[value]
        return sh.load(graph.root(value), t.dtype, sh.sum(list(zip((*at, x, y), t.strides, strict=True)), sh.number(t.offset)))

    with sh.block(f"for (var e = lane; e < {features}; e += {LANES})"):
        sh.line(f"query[e] = {element(node.inputs[0], row, 'e')} * f32({float(node.attr('scale'))!r});")
    sh.line("workgroupBarrier();")
    limit = sh.number(keys)
    if node.attr("causal"):
        limit = sh.let(f"min({limit}, {row} + 1)")
    sums = [f"sum{i}" for i in range(-(-made // LANES))]
    sh.line(f"var best = f32({_NOTHING});")
    sh.line("var total = 0.0;")
    for name in sums:
        sh.line(f"var {name} = 0.0;")
    with sh.block(f"for (var first = 0; first < {limit}; first += {LANES})"):
        sh.line("let key = first + lane;")
        sh.line(f"var score = f32({_NOTHING});")
        with sh.block(f"if (key < {limit})"):
            sh.line("score = 0.0;")
            with sh.block(f"for (var e = 0; e < {features}; e += 1)"):
                sh.line(f"score += query[e] * {element(node.inputs[1], 'key', 'e')};")
            if node.attr("masked"):
                mask = node.inputs[3]
                value = element(mask, row, "key")
                sh.line(f"score = select({_NOTHING}, score, {value});" if graph.values[mask].dtype.name == "bool" else f"score += {value};")
        sh.line("part[lane] = score;")
        sh.line("workgroupBarrier();")
        with sh.block(f"for (var s = {LANES // 2}; s > 0; s = s / 2)"):
            sh.line("if (lane < s) { part[lane] = maximum_f32(part[lane], part[lane + s]); }")
            sh.line("workgroupBarrier();")
        sh.line("let top = maximum_f32(best, part[0]);")
        sh.line("workgroupBarrier();")
        sh.line(f"part[lane] = select(exp(score - top), 0.0, score <= {_NOTHING});")
        sh.line(f"let fade = select(exp(best - top), 0.0, best <= {_NOTHING});")
        sh.line("workgroupBarrier();")
        sh.line("best = top;")
        sh.line("total *= fade;")
        for name in sums:
            sh.line(f"{name} *= fade;")
        with sh.block(f"for (var j = 0; j < min({LANES}, {limit} - first); j += 1)"):
            sh.line("let weight = part[j];")
            sh.line("total += weight;")
            for i, name in enumerate(sums):
                with sh.block(f"if (lane + {i * LANES} < {made})"):
                    sh.line(f"{name} += weight * {element(node.inputs[2], '(first + j)', f'(lane + {i * LANES})')};")
        sh.line("workgroupBarrier();")
    for i, name in enumerate(sums):
        with sh.block(f"if (lane + {i * LANES} < {made})"):
            place = sh.sum(list(zip((*at, row, f"(lane + {i * LANES})"), out.strides, strict=True)))
            sh.store(node.outputs[0], out.dtype, place, f"select({name} / total, 0.0, total == 0.0)")
    if is_read(graph, node.outputs[1]):
        sh.need("infinity")
        with sh.block("if (lane == 0)"):
            place = sh.sum(list(zip((*at, row), lse.strides, strict=True)))
            sh.store(node.outputs[1], lse.dtype, place, "select(best + log(total), infinity(), total == 0.0)")
    return sh.finish(points)


def is_read(graph: Graph, value: int) -> bool:
    """Whether anything wants a result."""
    wanted: Sequence[Any] = [*graph.outputs, *[i for n in graph.nodes for i in n.inputs]]
    return value in wanted or value in {graph.root(i) for i in wanted}
