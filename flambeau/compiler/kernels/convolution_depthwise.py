"""Convolutions whose groups have one input channel (depthwise): direct, one plane at a time in a thread's scratch.

Every case becomes a sum over taps of shifted copies of one flat, zero-padded plane (convolution_planes.py):

    result[q] = sum over taps t of coefficient[t] * plane[q + shift[t]],       q = row * pitch + column

with all columns of the pitch computed, those beyond the result's width thrown away. So no inner loop has an edge.
A stride deals the plane's rows and columns to sub-planes; an input gradient has a result for each residue of its pixels
instead, all from one plane. The weight's gradient is the product of two planes:

    w[t] = sum over q of result_gradient[q] * plane[q + shift[t]]              (zeros beyond the result's width)

Each result is summed by columns of taps, from the upper pixels of each to the lower ones, each weight in the order of images and lanes, whatever the split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_patches import Geometry, phases, read_kind, store_lanes
from flambeau.compiler.kernels.convolution_planes import PHASE, Axis, Phase, axes, copy_block, phase_of, plane_elements, shifts
from flambeau.compiler.kernels.convolution_problem import Problem, call_epilogue, load_record, numel
from flambeau.compiler.kernels.description import Epilogue, describe
from flambeau.compiler.kernels.matmul_blocking import round_up
from flambeau.compiler.kernels.matmul_element import Element, element_of
from flambeau.symbols import Sym, maximum, roughly_over

_VECTORS: Final = 4  # results computed together, where rows are not: their four sums hide the latency of a multiply-add
_MOST_COLUMN: Final = 7  # taps of a column: their weights stay in registers
_TAPS: Final = 9  # weights computed together: those of 3 x 3


@dataclass(frozen=True, slots=True)
class Facts:
    """`kind`: how source rows are read. `unit_out`: dense results. `phases`: residues of an input gradient. `upwards`: tap rows from the last to the first."""

    element: Element
    width: int
    vector_bits: int
    kind: str
    unit_out: bool
    phases: int
    upwards: bool
    column: int = 0  # taps of a column, where they lie a row of the plane apart each; negative from the last to the first; else 0

    def key(self) -> str:
        out = "unit" if self.unit_out else "strided"
        return f"{self.element.name}:{self.width}:{self.vector_bits}:{self.kind}:{out}:{self.phases}:{self.upwards}:{self.column}"

    @property
    def rows(self) -> int:
        """Rows of a result that are computed together, from what a column of taps loads once: their sums hide the latency of a multiply-add."""
        return 4 if self.vector_bits >= 512 else 8


def _plane(geometries: Sequence[Geometry], width: int, kernel: tuple[int, int]) -> tuple[list[Phase], list[int], int]:
    """Geometries that differ in their taps in one plane, the shifts of the taps, the plane's elements. `kernel`: strides of the taps' weights."""
    first = geometries[0]
    sides = [axes(g) for g in geometries]
    reading = [pair for pair, g in zip(sides, geometries, strict=True) if g.taps] or sides
    (top, reach_y), (left, reach_x) = (_extent([pair[i] for pair in reading], step) for i, step in enumerate((first.step_y, first.step_x)))
    sub_rows, pitch = first.pixels // maximum(1, first.width) + reach_y, first.width + reach_x
    plane = plane_elements(first.step_y * first.step_x, sub_rows, pitch)
    made: list[Phase] = []
    every: list[int] = []
    for g, both in zip(geometries, sides, strict=True):
        made.append(phase_of(g, (top, left), reach_y, sub_rows, pitch, plane, len(every), g.first_y * kernel[0] + g.first_x * kernel[1]))
        y, x = (replace(side, places=tuple([place + before - side.before for place in side.places])) for side, before in zip(both, (top, left), strict=True))
        every += shifts(g, y, x, sub_rows, pitch)
    return made, every, plane + reach_x + (_VECTORS + 1) * width  # with what the last vectors read


def _extent(sides: Sequence[Axis], step: int) -> tuple[int, int]:
    """(before, reach) of all of an axis."""
    before = max(side.before for side in sides)
    return before, (max(max(side.places) - side.before for side in sides) + before) // step


def make_depthwise(graph: Graph, p: Problem, op: str, node_index: int, epilogue: Epilogue | None) -> list[Kernel]:
    """Kernels of any of the three convolution nodes, for groups with one input channel."""
    host = graph.target
    element = element_of(p.dtype)
    size = element.compute_bytes
    width = max(1, host.vector_bits // (8 * size))
    gradient = op == "convolution_input_gradient"
    weight_channel, _, weight_y, weight_x = p.w.strides
    geometries = phases(p, gradient)
    first = geometries[0]
    blocked, places, elements = _plane(geometries, width, (weight_y, weight_x))
    taps = p.w.shape[2] * p.w.shape[3]
    traffic = (numel(p.x) + numel(p.w) + numel(p.y)) * p.dtype.itemsize
    kind = read_kind(first.step_x, first.stride_x)
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    planes = p.group_outputs if gradient else 1
    column = 0
    if planes == 1 and op != "convolution_weight_gradient" and len(geometries) == 1 and first.step_y == abs(first.tap_y) == 1:
        # The last vector of a row reaches into the next one: where much of them does, a plane is better computed as one row.
        pitch = blocked[0].pitch
        filled = roughly_over(pitch, 5 * width // 2) or (pitch.__class__ is not Sym and 10 * pitch >= 7 * round_up(pitch, width))
        column = first.tap_y * first.taps_y if filled and 1 < first.taps_y <= _MOST_COLUMN else 0
    facts = Facts(element, width, host.vector_bits, kind, (first.out_x == 1 or out.shape[3] == 1) and width > 1, len(geometries), gradient, column)
    beyond = facts.rows * blocked[0].pitch if column else 0  # rows of the plane and of results that nothing wants
    plane_bytes = round_up((elements + beyond) * size, 64)
    words: dict[str, Word] = {
        "weights": p.w.word, "weight_channel": weight_channel, "weight_y": weight_y * max(g.skip_y for g in geometries),
        "weight_x": weight_x * max(g.skip_x for g in geometries), "plane_bytes": plane_bytes, "multiplier": p.group_outputs,
    }  # fmt: skip
    if op == "convolution_weight_gradient":
        _, _, g_height, g_width = p.y.shape
        g_x = 1 if g_width == 1 else p.y.strides[3]
        g = replace(
            blocked[0], top=0, left=0, deal_y=1, deal_x=1, reach_y=0, source_height=g_height, source_width=g_width, stride_y=p.y.strides[2], stride_x=g_x
        )
        scratch = plane_bytes + round_up((g_height * g.pitch + 2 * width) * size, 64)
        words |= {
            "x": p.x.word, "g": p.y.word, "scratch": Scratch(scratch), "scratch_bytes": scratch, "g_at": plane_bytes, "batch": p.batch,
            "x_batch": p.x.strides[0], "x_channel": p.x.strides[1], "g_batch": p.y.strides[0], "g_channel": p.y.strides[1], "rows": g_height,
            "places": g_height * g.pitch, "taps": taps, "taps_x": p.w.shape[3],
        }  # fmt: skip
        g_kind = read_kind(1, g_x)
        return [
            describe(
                f"convolution_depthwise_weight_{element.name}", f"convolution:depthwise_weight:{facts.key()}:{g_kind}",
                partial(_weight_body, facts, g_kind), words, {"of_x": astuple(blocked[0]), "of_g": astuple(g), "shifts": places},
                reads=tuple(dict.fromkeys((p.y.root, p.x.root))), writes=(p.w.root,), units=p.y.shape[1], bytes=traffic, operations=p.operations,
                nodes=(node_index,), min_units_per_thread=maximum(1, (64 << 10) * p.y.shape[1] // maximum(1, traffic)),
            )
        ]  # fmt: skip
    results = round_up(blocked[0].pitch * blocked[0].height + beyond + _VECTORS * width, width)  # of a phase
    coefficients_at = plane_bytes + round_up(results * len(geometries) * size, 64)
    scratch = coefficients_at + round_up(taps * size, 64)
    units = out.shape[0] * out.shape[1]
    # A unit is a plane of the result. The gradient of an input plane sums over the planes made from it.
    words |= {
        "source": source.word, "out": out.word, "scratch": Scratch(scratch), "scratch_bytes": scratch, "results_at": plane_bytes, "results": results,
        "coefficients_at": coefficients_at, "channels": out.shape[1], "planes": planes,
        "per_source": 1 if gradient else p.group_outputs, "source_batch": source.strides[0], "source_channel": source.strides[1],
        "out_batch": out.strides[0], "out_channel": out.strides[1], "rows": blocked[0].height, "pixels": out.shape[2] * out.shape[3],
    }  # fmt: skip
    first_shift = len(words) + len(geometries) * len(PHASE) + (0 if epilogue is None else len(epilogue.words))
    table = [word for q in blocked for word in astuple(replace(q, shifts_at=first_shift + q.shifts_at))]
    return [
        describe(
            f"convolution_depthwise_{element.name}", f"convolution:depthwise:{facts.key()}", partial(_planes_body, facts, epilogue is not None), words,
            {"table": table}, places, epilogue=epilogue,
            reads=tuple(dict.fromkeys((source.root, p.w.root))), writes=(out.root,), units=units, bytes=traffic, operations=p.operations,
            nodes=(node_index,), min_units_per_thread=maximum(1, (64 << 10) * units // maximum(1, traffic)),
        )
    ]  # fmt: skip


def _clear(b: Builder, at: str, nbytes: str) -> None:
    """Zeros, which stay around the pixels: every unit has them at the same places."""
    b.call("void", "llvm.memset.p0.i64", [("ptr", at), ("i8", "0"), ("i64", nbytes), ("i1", "false")])


def _planes_body(facts: Facts, has_epilogue: bool, b: Builder, w: dict[str, str]) -> None:
    """Forward and input gradient: a unit is one plane of the result."""
    element, width = facts.element, facts.width
    compute, size, memory = element.compute, element.compute_bytes, element.memory
    plane = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    results, coefficients = b.gep("i8", plane, w["results_at"]), b.gep("i8", plane, w["coefficients_at"])
    _clear(b, plane, w["plane_bytes"])
    record = load_record(b, w["table"], PHASE)
    with b.for_("%begin", "%end") as u:
        n, c = b.op(f"udiv i64 {u}, {w['channels']}"), b.op(f"urem i64 {u}, {w['channels']}")
        out = b.gep(memory, w["out"], b.add(b.mul(n, w["out_batch"]), b.mul(c, w["out_channel"])))

        def of_phase(f: str) -> tuple[dict[str, str], str]:
            q = record if facts.phases == 1 else load_record(b, b.gep("i64", w["table"], b.mul(f, len(PHASE))), PHASE)
            return q, b.gep(compute, results, b.mul(f, w["results"]))

        with b.for_(0, w["planes"]) as m:
            # Forward: source channel c / multiplier, weight c. Gradient: source and weight channel c * multiplier + m.
            channel = b.add(b.mul(b.op(f"udiv i64 {c}, {w['per_source']}"), w["planes"]), m)
            weight = b.add(b.mul(c, w["planes"]), m)
            image = b.gep(memory, w["source"], b.add(b.mul(n, w["source_batch"]), b.mul(channel, w["source_channel"])))
            copy_block(b, element, width, facts.kind, record, image, plane, "1", "0", "0", w["rows"], clean=True)
            with b.for_(0, facts.phases) as f:
                q, result = of_phase(f)
                first_weight = b.gep(memory, w["weights"], b.add(b.mul(weight, w["weight_channel"]), q["weights_offset"]))
                with b.for_(0, q["taps_y"]) as ty, b.for_(0, q["taps_x"]) as tx:
                    at = b.add(b.mul(ty, w["weight_y"]), b.mul(tx, w["weight_x"]))
                    value = element.widen(b, 1, b.load(memory, b.gep(memory, first_weight, at), element.memory_bytes))
                    b.store(compute, value, b.gep(compute, coefficients, b.add(b.mul(ty, q["taps_x"]), tx)), size)
                shifts = b.gep("i64", "%args", q["shifts_at"])
                if facts.column:
                    _by_rows(b, facts, q, plane, result, coefficients, shifts)
                else:
                    _by_taps(b, facts, q, plane, result, coefficients, shifts, b.op(f"icmp eq i64 {m}, 0"))
        with b.for_(0, facts.phases) as f:
            q, result = of_phase(f)
            to = b.gep(memory, out, q["out_offset"])
            with b.for_(0, q["height"]) as y:
                from_row, to_row = b.gep(compute, result, b.mul(y, q["pitch"])), b.gep(memory, to, b.mul(y, q["out_y"]))
                lanes = width if facts.unit_out or facts.phases > 1 else 1  # one by one is faster where all of a row's columns are far apart
                with b.for_(0, q["width"], lanes) as x:
                    value = element.narrow(b, lanes, b.load(vector(compute, lanes), b.gep(compute, from_row, x), size))
                    store_lanes(b, memory, element.memory_bytes, lanes, facts.unit_out, value, to_row, x, b.sub(q["width"], x), q["out_x"])
        if has_epilogue:
            call_epilogue(b, n, "1", (c, b.add(c, 1)), ("0", w["pixels"]))


def _by_taps(b: Builder, facts: Facts, q: dict[str, str], plane: str, result: str, coefficients: str, shifts: str, fresh: str) -> None:
    """A result as one row, column of taps after column, added to what is there or, if `fresh`, to nothing."""
    element, width = facts.element, facts.width
    compute, size, type_ = element.compute, element.compute_bytes, vector(element.compute, width)
    with b.for_(0, b.mul(q["pitch"], q["height"]), _VECTORS * width) as at:
        places = [b.gep(compute, b.gep(compute, result, at), v * width) for v in range(_VECTORS)]
        start = [b.op(f"select i1 {fresh}, {type_} {element.zero(width)}, {type_} {b.load(type_, place, size)}") for place in places]
        base = b.gep(compute, plane, at)
        with b.fold(0, q["taps_x"], 1, [(type_, value) for value in start]) as (tx, columns):
            with b.fold(0, q["taps_y"], 1, [(type_, value) for value in columns]) as (i, sums):
                ty = b.sub(b.sub(q["taps_y"], 1), i) if facts.upwards else i
                t = b.add(b.mul(ty, q["taps_x"]), tx)
                coefficient = b.splat(compute, width, b.load(compute, b.gep(compute, coefficients, t), size))
                source = b.gep(compute, base, b.load("i64", b.gep("i64", shifts, t), 8))
                loaded = [b.load(type_, b.gep(compute, source, v * width), size) for v in range(_VECTORS)]
                sums[:] = [element.multiply_add(b, width, coefficient, value, old) for value, old in zip(loaded, sums, strict=True)]
            columns[:] = sums
        for value, place in zip(columns, places, strict=True):
            b.store(type_, value, place, size)


def _by_rows(b: Builder, facts: Facts, q: dict[str, str], plane: str, result: str, coefficients: str, shifts: str) -> None:
    """Some rows of a result, column of taps after column: a row of the plane is loaded once for all of them."""
    element, width, taps = facts.element, facts.width, abs(facts.column)
    compute, size, type_ = element.compute, element.compute_bytes, vector(element.compute, width)
    order = range(taps) if facts.column > 0 else range(taps - 1, -1, -1)  # of taps, from row to row of the plane
    with b.for_(0, q["height"], facts.rows) as y, b.for_(0, q["pitch"], width) as x:
        at = b.add(b.mul(y, q["pitch"]), x)
        with b.fold(0, q["taps_x"], 1, [(type_, element.zero(width))] * facts.rows) as (tx, sums):
            numbers = [b.add(b.mul(q["taps_x"], t), tx) for t in order]
            factors = [b.splat(compute, width, b.load(compute, b.gep(compute, coefficients, number), size)) for number in numbers]
            source = b.gep(compute, plane, b.add(at, b.load("i64", b.gep("i64", shifts, numbers[0]), 8)))
            following = list(sums)
            for line in range(facts.rows + taps - 1):
                value = b.load(type_, source, size)
                for row in range(max(0, line - taps + 1), min(facts.rows, line + 1)):
                    following[row] = element.multiply_add(b, width, factors[line - row], value, following[row])
                source = b.gep(compute, source, q["pitch"])
            sums[:] = following
        to = b.gep(compute, result, at)
        for value in sums:
            b.store(type_, value, to, size)
            to = b.gep(compute, to, q["pitch"])


def _weight_body(facts: Facts, g_kind: str, b: Builder, w: dict[str, str]) -> None:
    """Weight gradient: a unit is one output channel, all its images in order."""
    element, width = facts.element, facts.width
    compute, size, memory = element.compute, element.compute_bytes, element.memory
    type_ = vector(compute, width)
    plane = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    gradient = b.gep("i8", plane, w["g_at"])
    b.allocas.append(f"  %lanes = alloca [{width} x {compute}], align 64")
    _clear(b, plane, w["scratch_bytes"])
    zeros = [(type_, element.zero(width))] * _TAPS
    records = {name: load_record(b, w[f"of_{name}"], PHASE) for name in ("x", "g")}
    with b.for_("%begin", "%end") as o:
        c = b.op(f"udiv i64 {o}, {w['multiplier']}")
        with b.for_(0, w["taps"], _TAPS) as t:
            # Taps beyond the last repeat the last; their sums are not stored.
            numbers = [b.min(b.add(t, i), b.sub(w["taps"], 1)) for i in range(_TAPS)]
            places = [b.gep(compute, plane, b.load("i64", b.gep("i64", w["shifts"], number), 8)) for number in numbers]
            with b.fold(0, w["batch"], 1, zeros) as (n, totals):
                for name, kind, channel, to in (("x", facts.kind, c, plane), ("g", g_kind, o, gradient)):
                    image = b.gep(memory, w[name], b.add(b.mul(n, w[f"{name}_batch"]), b.mul(channel, w[f"{name}_channel"])))
                    copy_block(b, element, width, kind, records[name], image, to, "1", "0", "0", w["rows"], clean=True)
                with b.fold(0, w["places"], width, zeros) as (q, sums):
                    left = b.load(type_, b.gep(compute, gradient, q), size)
                    right = [b.load(type_, b.gep(compute, place, q), size) for place in places]
                    sums[:] = [element.multiply_add(b, width, left, value, old) for value, old in zip(right, sums, strict=True)]
                totals[:] = [element.add(b, width, old, new) for old, new in zip(totals, sums, strict=True)]
            for i, total in enumerate(totals):
                with b.if_(b.op(f"icmp slt i64 {b.add(t, i)}, {w['taps']}")):
                    b.store(type_, total, "%lanes", 64)
                    with b.fold(0, width, 1, [(compute, element.zero(1))]) as (lane, values):
                        values[:] = [element.add(b, 1, values[0], b.load(compute, b.gep(compute, "%lanes", lane), size))]
                    ty, tx = (b.op(f"{which} i64 {b.add(t, i)}, {w['taps_x']}") for which in ("udiv", "urem"))
                    at = b.add(b.mul(o, w["weight_channel"]), b.add(b.mul(ty, w["weight_y"]), b.mul(tx, w["weight_x"])))
                    b.store(memory, element.narrow(b, 1, values[0]), b.gep(memory, w["weights"], at), element.memory_bytes)
