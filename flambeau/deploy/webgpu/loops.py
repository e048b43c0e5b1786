"""Loop nests as shaders: what `lower` makes of a group of pointwise operations and reductions (`Body`), in WGSL.

Without reductions each thread computes one point. With them the points of the reduced loops are shared by the threads of a workgroup, whose partial results
meet in its memory; where a row is short, one thread takes the whole row. A softmax, a layer norm is one shader of several stages over the row, as it is one
nest for a processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from math import prod
from typing import Any, Final

from flambeau.compiler.lower import layout
from flambeau.compiler.lower.spec import Compute, Load, Reduce, Statement, Store
from flambeau.compiler.lower.statements import Body, RawAccess
from flambeau.deploy.errors import BuildError
from flambeau.deploy.webgpu import functions
from flambeau.deploy.webgpu.shader import LANES, TYPES, Kernel, Memory, Shader
from flambeau.symbols import roughly_over

SHORT: Final = 24  # points of a row that one thread takes alone, where there are rows for all threads


class Statements:
    """Writes the statements of a body, over names of its loops' indices. `given`: expressions of roots that need no load."""

    def __init__(self, shader: Shader, body: Body, index: Mapping[int, str], given: Mapping[int, str] | None = None) -> None:
        self.shader = shader
        self.body = body
        self.index = dict(index)
        self.given = given or {}
        self.partial: dict[int, str] = {}  # of reductions under way: the variable of each result

    def kind(self, value: int) -> str:
        return TYPES[self.body.dtypes[value].name] if self.body.dtypes[value].name in TYPES else self._unknown(self.body.dtypes[value])

    def _unknown(self, d: Any) -> str:
        raise BuildError(f"{self.shader.name} computes with {d}: shaders have float32, integers to 32 bits and bool; convert it in the model")

    def at(self, a: RawAccess) -> str:
        """The element of an access at the current point."""
        if a.dynamic:
            raise BuildError(f"{self.shader.name} reads where a run-time number says, which a plan for WebGPU has not yet; make it a constant of the program")
        start = self.shader.number(a.offset)
        return self.shader.sum([(self.index[loop], stride) for loop, stride in a.strides.items()], start)

    def write(self, s: Statement, guard: bool = False) -> None:
        """One statement. `guard`: stores are of the first thread only."""
        sh = self.shader
        match s:
            case Load(out, access):
                a = self.body.accesses[access]
                if a.role == "index":
                    value = f"i32({self.at(a)})"
                else:
                    assert a.value is not None
                    value = self.given.get(a.value) or sh.load(a.value, a.dtype, self.at(a))
                self._define(out, value)
            case Compute(out, op, inputs, attrs, base):
                self._define(out, self._computed(out, op, [f"v{i}" for i in inputs], inputs, dict(attrs), base))
            case Store(access, value):
                a = self.body.accesses[access]
                assert a.value is not None
                if guard:
                    with sh.block("if (lane == 0)"):
                        sh.store(a.value, a.dtype, self.at(a), f"v{value}")
                else:
                    sh.store(a.value, a.dtype, self.at(a), f"v{value}")
            case Reduce(outs, op, sources):
                self._gather(outs, op, sources)

    def _define(self, out: int, value: str) -> None:
        self.shader.line(f"let v{out}: {self.kind(out)} = {value};")

    def _computed(self, out: int, op: str, xs: Sequence[str], inputs: Sequence[int], attrs: dict[str, Any], base: int) -> str:
        sh = self.shader
        if op == "constant":
            text, calls = functions.literal(attrs["value"], self.kind(out))
        elif op == "take":
            a = self.body.accesses[base]
            assert a.value is not None
            sh.need("inside")
            step = f" * {xs[2]}" if len(xs) > 2 else ""
            return sh.load(a.value, a.dtype, f"{self.at(a)} + inside({xs[0]}, {xs[1]}){step}")
        elif op in ("searchsorted", "random_uniform", "make_complex", "imag_part"):
            raise BuildError(f"{op} is not there in WGSL yet: take it out of the model, or build it for wasm32")
        else:
            d = self.body.dtypes[inputs[-1]]
            text, calls = functions.apply(op, d, self.kind(inputs[-1]), xs, attrs, self.kind(out))
        sh.need(*calls)
        return text

    # -- reductions -----------------------------------------------------------------------------------------------
    def begin(self, reductions: Sequence[Reduce]) -> None:
        """Variables of the partial results."""
        sh = self.shader
        for r in reductions:
            kind = self.kind(r.outs[0])
            start, calls = functions.identity(r.op, kind)
            sh.need(*calls)
            for out in r.outs:
                self.partial[out] = sh.fresh("p")
            sh.line(f"var {self.partial[r.outs[0]]}: {kind} = {start};")
            if r.op.startswith("arg"):
                sh.line(f"var {self.partial[r.outs[1]]}: i32 = 2147483647;")

    def _gather(self, outs: Sequence[int], op: str, sources: Sequence[int]) -> None:
        sh, p = self.shader, self.partial[outs[0]]
        kind = self.kind(outs[0])
        if op.startswith("arg"):
            i = self.partial[outs[1]]
            wins = self._wins(op, kind)
            with sh.block(f"if ({wins}({p}, {i}, v{sources[0]}, v{sources[1]}))"):
                sh.line(f"{p} = v{sources[0]};")
                sh.line(f"{i} = v{sources[1]};")
            return
        text, calls = functions.combine(op, kind, p, f"v{sources[0]}")
        sh.need(*calls)
        sh.line(f"{p} = {text};")

    def _wins(self, op: str, kind: str) -> str:
        """The function that says whether the second pair of value and index goes before the first: NaN, then the value, then the smaller index."""
        if kind == "bool":
            raise BuildError(f"{op} of bool is not there in WGSL yet")
        name = f"{op}_wins_{kind}"
        sign = ">" if op == "argmax" else "<"
        nan = "if (is_nan(x) != is_nan(y)) { return is_nan(y); }\n  if (is_nan(x)) { return j < i; }\n  " if kind == "f32" else ""
        if kind == "f32":
            self.shader.need("is_nan")
        self.shader.shared[name] = f"fn {name}(x: {kind}, i: i32, y: {kind}, j: i32) -> bool {{\n  {nan}return y {sign} x || (y == x && j < i);\n}}"
        return name

    def end(self, reductions: Sequence[Reduce], together: bool) -> None:
        """The results, over all threads of the workgroup if they work `together`."""
        sh = self.shader
        for r in reductions:
            kind = self.kind(r.outs[0])
            names = [self.partial[out] for out in r.outs]
            if together:
                for at in range(len(names)):
                    part = f"part_{'i' if at else kind}"
                    sh.shared[part] = f"var<workgroup> {part}: array<{'i32' if at else _held(kind)}, {sh.lanes}>;"
                self._meet(r.op, kind, names)
            self._define(r.outs[0], names[0])
            if len(names) > 1:
                sh.line(f"let v{r.outs[1]}: i32 = {names[1]};")

    def _meet(self, op: str, kind: str, names: Sequence[str]) -> None:
        """A tree over the threads' partial results; all threads know the result."""
        sh = self.shader
        part = f"part_{kind}"
        into = (lambda x: f"select(0u, 1u, {x})") if kind == "bool" else (lambda x: x)  # memory that is shared is plain words
        out = (lambda x: f"({x} != 0u)") if kind == "bool" else (lambda x: x)
        sh.line("workgroupBarrier();")
        sh.line(f"{part}[lane] = {into(names[0])};")
        if len(names) > 1:
            sh.line(f"part_i[lane] = {names[1]};")
        sh.line("workgroupBarrier();")
        with sh.block(f"for (var s = {sh.lanes // 2}; s > 0; s = s / 2)"):
            with sh.block("if (lane < s)"):
                a, b = out(f"{part}[lane]"), out(f"{part}[lane + s]")
                if len(names) > 1:
                    with sh.block(f"if ({self._wins(op, kind)}({a}, part_i[lane], {b}, part_i[lane + s]))"):
                        sh.line(f"{part}[lane] = {b};")
                        sh.line("part_i[lane] = part_i[lane + s];")
                else:
                    text, calls = functions.combine(op, kind, a, b)
                    sh.need(*calls)
                    sh.line(f"{part}[lane] = {into(text)};")
            sh.line("workgroupBarrier();")
        sh.line(f"{names[0]} = {out(f'{part}[0]')};")
        if len(names) > 1:
            sh.line(f"{names[1]} = part_i[0];")


def _held(kind: str) -> str:
    return "u32" if kind == "bool" else kind


def nest(memory: Memory, body: Body, sizes: Mapping[int, Any], name: str) -> Kernel:
    """The shader of a body over loops of these sizes."""
    own = dict(sizes)
    rows = layout.join(layout.order(body.row_loops, own, body.accesses, True), own, body.accesses)
    reduced = layout.join(layout.order(body.reduced_loops, own, body.accesses, False), own, body.accesses)
    points = prod([own[loop] for loop in rows])
    length = prod([own[loop] for loop in reduced])
    stages = any(block.stage for block in body.blocks)
    together = stages and (roughly_over(length, SHORT) or not roughly_over(points, LANES * LANES))
    shader = Shader(name, memory, LANES)
    if together:
        shader.line("let point = group;")
        shader.line(f"if (point >= {shader.number(points)}) {{ return; }}")  # all of a workgroup or none: what barriers ask for
    else:
        shader.line(f"let point = group * {LANES} + lane;")
    with nullcontext() if together else shader.block(f"if (point < {shader.number(points)})"):
        index = dict(zip(rows, shader.split("point", [own[loop] for loop in rows]), strict=True))
        statements = Statements(shader, body, index)
        for block in body.blocks:
            if not block.stage:
                for s in block.body:
                    statements.write(s, guard=together)
                continue
            reductions = [s for s in block.body if isinstance(s, Reduce)]
            statements.begin(reductions)
            start, step = ("lane", LANES) if together else ("0", 1)
            r = shader.fresh("r")
            with shader.block(f"for (var {r} = {start}; {r} < {shader.number(length)}; {r} += {step})"):
                statements.index.update(zip(reduced, shader.split(r, [own[loop] for loop in reduced]), strict=True))
                for s in block.body:
                    statements.write(s)
            statements.end(reductions, together)
    return shader.finish(points if together else -(-points // LANES))
