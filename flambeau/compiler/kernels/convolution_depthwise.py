"""Convolutions whose groups have one input channel (depthwise): direct, one plane at a time in a thread's scratch.

Every case becomes a sum over taps of shifted copies of one flat, zero-padded plane:

    result[q] = sum over taps t of coefficient[t] * plane[q + shift[t]],       q = row * pitch + column

with all columns of the pitch computed, those beyond the result's width thrown away. So no inner loop has an edge.
A stride becomes part of how the plane is laid out: rows and columns are dealt to `stride` sub-planes by their residue
(an input gradient instead spreads g out with zeros between). The weight's gradient is the product of two planes:

    w[t] = sum over q of result_gradient[q] * plane[q + shift[t]]              (zeros beyond the result's width)

Each result is summed in the order of the taps, each weight in the order of images and lanes, whatever the split.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_patches import bit_mask, masked_read, read_kind
from flambeau.compiler.kernels.convolution_problem import Operand, Problem, numel, strides_of
from flambeau.compiler.kernels.description import Epilogue, describe
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import Element, element_of
from flambeau.symbols import maximum


def _plane(
    o: Operand, spread: tuple[int, int], before: tuple[int, int], reach: tuple[int, int], deal: tuple[int, int],
    result: tuple[int, int], width: int,
) -> Plane:  # fmt: skip
    """The plane of `o` for a result of that size whose taps lie up to `reach` places after its pixel (times deal)."""
    rows = result[0] + ceil_div(reach[0], deal[0])
    pitch = result[1] + ceil_div(reach[1], deal[1])
    # The last vectors read past the result's last row, shifted by up to the reach.
    total = round_up(deal[0] * deal[1] * rows * pitch + ceil_div(reach[1], deal[1]) + (VECTORS + 1) * width, width)
    stride_x = 1 if o.shape[3] == 1 else o.strides[3]
    return Plane(o.shape[2], o.shape[3], o.strides[2], stride_x, *spread, *before, *deal, rows, pitch, total)


def _forward_plane(p: Problem, width: int) -> tuple[Plane, list[int]]:
    """x laid out for the output, and the shift of each tap."""
    kernel = p.w.shape[2:]
    reach = tuple((k - 1) * d for k, d in zip(kernel, p.dilation, strict=True))
    plane = _plane(p.x, (1, 1), p.padding, (reach[0], reach[1]), p.stride, (p.y.shape[2], p.y.shape[3]), width)
    shifts = [plane.shift(ty * p.dilation[0], tx * p.dilation[1]) for ty in range(kernel[0]) for tx in range(kernel[1])]
    return plane, shifts


def _gradient_plane(p: Problem, width: int) -> tuple[Plane, list[int]]:
    """y's gradient laid out for x, and the shift of each tap: place i + padding - k * dilation, moved by the reach."""
    kernel = p.w.shape[2:]
    reach = tuple((k - 1) * d for k, d in zip(kernel, p.dilation, strict=True))
    before = tuple(r - q for r, q in zip(reach, p.padding, strict=True))
    plane = _plane(p.y, p.stride, (before[0], before[1]), (reach[0], reach[1]), (1, 1), (p.x.shape[2], p.x.shape[3]), width)
    shifts = [plane.shift(reach[0] - ty * p.dilation[0], reach[1] - tx * p.dilation[1]) for ty in range(kernel[0]) for tx in range(kernel[1])]
    return plane, shifts


def make_depthwise(graph: Graph, p: Problem, op: str, node_index: int, epilogue: Epilogue | None) -> list[Kernel]:
    """Kernels of any of the three convolution nodes, for groups with one input channel."""
    host = graph.target
    element = element_of(p.dtype)
    width = max(1, host.vector_bits // (8 * element.compute_bytes))
    size = element.compute_bytes
    gradient = op == "convolution_input_gradient"
    plane, shifts = _gradient_plane(p, width) if gradient else _forward_plane(p, width)
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    multiplier = p.group_outputs
    taps = len(shifts)
    itemsize = p.dtype.itemsize
    elements = numel(p.x) + numel(p.w) + numel(p.y)
    kind = read_kind(1, plane.stride_x) if plane.spread_x == 1 and plane.deal_x == 1 else "scalar"
    facts = Facts(element, width, host.vector_bits, kind, out.strides[3] == 1 or out.shape[3] == 1)
    plane_bytes = round_up(plane.total * size, 64)
    if op == "convolution_weight_gradient":
        spread = round_up(plane.pitch * p.y.shape[2] + width, width)
        scratch = plane_bytes + round_up(spread * size, 64)
        g_kind = read_kind(1, 1 if p.y.shape[3] == 1 else p.y.strides[3])
        words: dict[str, Word] = {
            "g": p.y.word, "x": p.x.word, "out": p.w.word, "scratch": Scratch(scratch), "scratch_bytes": scratch, "spread_at": plane_bytes,
            "batch": p.batch, "multiplier": multiplier, "x_batch": p.x.strides[0], "x_channel": p.x.strides[1], "g_batch": p.y.strides[0],
            "g_channel": p.y.strides[1], "weight_channel": p.w.strides[0], "weight_y": p.w.strides[2], "weight_x": p.w.strides[3],
            "taps_x": p.w.shape[3], "g_height": p.y.shape[2], "g_width": p.y.shape[3], "g_y": p.y.strides[2],
            "g_x": 1 if p.y.shape[3] == 1 else p.y.strides[3], "spread": spread, "taps": taps, **asdict(plane),
        }  # fmt: skip
        key = f"convolution:depthwise_weight:{facts.key()}:{g_kind}"
        return [
            describe(
                f"convolution_depthwise_weight_{element.name}", key, partial(weight_body, facts, g_kind), words, {"shifts": shifts},
                reads=tuple(dict.fromkeys((p.y.root, p.x.root))), writes=(p.w.root,), units=p.y.shape[1],
                bytes=elements * itemsize, operations=p.operations, nodes=(node_index,),
                min_units_per_thread=maximum(1, (64 << 10) * p.y.shape[1] // maximum(1, elements * itemsize)),
            )
        ]  # fmt: skip
    result = round_up(plane.pitch * out.shape[2] + VECTORS * width, width)
    scratch = plane_bytes + round_up(result * size, 64) + round_up(taps * size, 64)
    units = out.shape[0] * out.shape[1]
    # A unit is a plane of the result. The gradient of an input plane sums over the `multiplier` planes made from it.
    planes = multiplier if gradient else 1
    words = {
        "source": source.word, "weights": p.w.word, "out": out.word, "scratch": Scratch(scratch), "scratch_bytes": scratch, "result_at": plane_bytes,
        "coefficients_at": plane_bytes + round_up(result * size, 64), "channels": out.shape[1], "planes": planes,
        "per_source": 1 if gradient else multiplier, "source_batch": source.strides[0], "source_channel": source.strides[1],
        **strides_of("out", out.strides), "out_height": out.shape[2], "out_width": out.shape[3], "weight_channel": p.w.strides[0],
        "weight_y": p.w.strides[2], "weight_x": p.w.strides[3], "taps_y": p.w.shape[2], "taps_x": p.w.shape[3], "taps": taps, **asdict(plane),
    }  # fmt: skip
    words["shifts_at"] = len(words) + 1 + (0 if epilogue is None else len(epilogue.words))
    return [
        describe(
            f"convolution_depthwise_{element.name}", f"convolution:depthwise:{facts.key()}", partial(planes_body, facts, epilogue is not None), words,
            rest=shifts, epilogue=epilogue, reads=tuple(dict.fromkeys((source.root, p.w.root))), writes=(out.root,), units=units,
            bytes=elements * itemsize, operations=p.operations, nodes=(node_index,),
            min_units_per_thread=maximum(1, (64 << 10) * units // maximum(1, elements * itemsize)),
        )
    ]  # fmt: skip


# -- Images laid out as planes, and the kernel of results and of input gradients (what they are: convolution_depthwise.py) --
VECTORS = 4  # results computed together: their four sums hide the latency of a multiply-add


@dataclass(frozen=True, slots=True)
class Plane:
    """How a plane is laid out in scratch, and filled from the rows of an image.

    Image pixel (y, x) goes to padded place (y * spread_y + top, x * spread_x + left); place (Y, X) lies in sub-plane
    (Y % deal_y, X % deal_x), at row Y / deal_y and column X / deal_x of `pitch`. Either spread or deal is 1.
    """

    height: int
    width: int
    stride_y: int
    stride_x: int
    spread_y: int
    spread_x: int
    top: int
    left: int
    deal_y: int
    deal_x: int
    rows: int  # of a sub-plane
    pitch: int
    total: int  # elements of all sub-planes, with slack for the last vectors

    def shift(self, y: int, x: int) -> int:
        """Index of padded place (y, x)."""
        sub = (y % self.deal_y) * self.deal_x + x % self.deal_x
        return (sub * self.rows + y // self.deal_y) * self.pitch + x // self.deal_x


@dataclass(frozen=True, slots=True)
class Facts:
    """`kind`: how source rows are read ("scalar" where a stride spreads or deals them). `unit_out`: dense results."""

    element: Element
    width: int
    vector_bits: int
    kind: str
    unit_out: bool

    def key(self) -> str:
        return f"{self.element.name}:{self.width}:{self.vector_bits}:{self.kind}:{'unit' if self.unit_out else 'strided'}"


def clear(b: Builder, element: Element, width: int, target: str, count: str) -> None:
    """Zero `count` elements, a multiple of the width."""
    type_ = vector(element.compute, width)
    zero = element.zero(width)
    with b.for_(0, count, width) as i:
        b.store(type_, zero, b.gep(element.compute, target, i), element.compute_bytes)


def copy_row(
    b: Builder, element: Element, width: int, kind: str, source: str, count: str, distance: str, target: str
) -> None:  # fmt: skip
    """`count` elements, `distance` apart, to neighbours at target, in the compute type."""
    with b.for_(0, count, width) as x:
        left = b.sub(count, x)
        at = b.gep(element.memory, source, b.mul(x, distance))
        read = masked_read(b, element.memory, width, element.memory_bytes, kind, "0", left, distance)
        value = element.widen(b, width, read(at))
        to = b.gep(element.compute, target, x)
        if width == 1:
            b.store(element.compute, value, to, element.compute_bytes)
        else:
            b.masked_store(element.compute, width, value, to, bit_mask(b, width, 0, left), element.compute_bytes)


def fill_plane(b: Builder, facts: Facts, w: dict[str, str], source: str, target: str) -> None:
    """Lay the image at `source` out as a plane; the zeros around it must be there already."""
    element = facts.element
    with b.for_(0, w["height"]) as y:
        place_y = b.add(b.mul(y, w["spread_y"]), w["top"])
        sub_y, row_y = b.op(f"urem i64 {place_y}, {w['deal_y']}"), b.op(f"udiv i64 {place_y}, {w['deal_y']}")
        line = b.add(b.mul(b.mul(sub_y, w["deal_x"]), w["rows"]), row_y)  # in rows of the first sub-plane of this sub_y
        from_row = b.gep(element.memory, source, b.mul(y, w["stride_y"]))
        # Places before 0 (more padding taken away than the taps reach) or after the plane are never read: skip them.
        inside = b.op(f"icmp ult i64 {place_y}, {b.mul(w['rows'], w['deal_y'])}")
        with b.if_(inside):
            if facts.kind != "scalar":
                first = b.max(b.sub(0, w["left"]), 0)
                after = b.min(w["width"], b.sub(w["pitch"], w["left"]))
                to = b.gep(element.compute, target, b.add(b.mul(line, w["pitch"]), b.add(first, w["left"])))
                start = b.gep(element.memory, from_row, b.mul(first, w["stride_x"]))
                copy_row(b, element, facts.width, facts.kind, start, b.sub(after, first), w["stride_x"], to)
            else:
                with b.for_(0, w["width"]) as x:
                    place_x = b.add(b.mul(x, w["spread_x"]), w["left"])
                    sub_x, column_x = b.op(f"urem i64 {place_x}, {w['deal_x']}"), b.op(f"udiv i64 {place_x}, {w['deal_x']}")
                    within = b.op(f"icmp ult i64 {place_x}, {b.mul(w['pitch'], w['deal_x'])}")
                    with b.if_(within):
                        value = b.load(element.memory, b.gep(element.memory, from_row, b.mul(x, w["stride_x"])), element.memory_bytes)
                        at = b.add(b.mul(b.add(line, b.mul(sub_x, w["rows"])), w["pitch"]), column_x)
                        b.store(
                            element.compute,
                            element.widen(b, 1, value),
                            b.gep(element.compute, target, at),
                            element.compute_bytes,
                        )


def planes_body(facts: Facts, has_epilogue: bool, b: Builder, w: dict[str, str]) -> None:
    """Forward and input gradient: a unit is one plane of the result."""
    element, width = facts.element, facts.width
    compute, size, memory = element.compute, element.compute_bytes, element.memory
    type_ = vector(compute, width)
    shifts = b.gep("i64", "%args", w["shifts_at"])
    plane = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    result, coefficients = b.gep("i8", plane, w["result_at"]), b.gep("i8", plane, w["coefficients_at"])
    wide = b.mul(w["pitch"], w["out_height"])
    # The zeros around the image stay: every unit overwrites the same places.
    clear(b, element, width, plane, w["total"])
    with b.for_("%begin", "%end") as u:
        n, c = b.op(f"udiv i64 {u}, {w['channels']}"), b.op(f"urem i64 {u}, {w['channels']}")
        out = b.gep(memory, w["out"], b.add(b.mul(n, w["out_batch"]), b.mul(c, w["out_channel"])))
        with b.for_(0, w["planes"]) as m:
            # Forward: source channel c / multiplier, weight c. Gradient: source and weight channel c * multiplier + m.
            channel = b.add(b.mul(b.op(f"udiv i64 {c}, {w['per_source']}"), w["planes"]), m)
            weight = b.add(b.mul(c, w["planes"]), m)
            image = b.gep(memory, w["source"], b.add(b.mul(n, w["source_batch"]), b.mul(channel, w["source_channel"])))
            fill_plane(b, facts, w, image, plane)
            first_weight = b.gep(memory, w["weights"], b.mul(weight, w["weight_channel"]))
            with b.for_(0, w["taps_y"]) as ty, b.for_(0, w["taps_x"]) as tx:
                at = b.add(b.mul(ty, w["weight_y"]), b.mul(tx, w["weight_x"]))
                value = element.widen(b, 1, b.load(memory, b.gep(memory, first_weight, at), element.memory_bytes))
                b.store(compute, value, b.gep(compute, coefficients, b.add(b.mul(ty, w["taps_x"]), tx)), size)
            fresh = b.op(f"icmp eq i64 {m}, 0")
            with b.for_(0, wide, VECTORS * width) as q:
                old = []
                for v in range(VECTORS):
                    at = b.gep(compute, result, b.add(q, v * width))
                    before = b.load(type_, at, size)
                    old.append((type_, b.op(f"select i1 {fresh}, {type_} {element.zero(width)}, {type_} {before}")))
                base = b.gep(compute, plane, q)

                def tap(t: str, *sums: str) -> list[str]:
                    coefficient = b.splat(compute, width, b.load(compute, b.gep(compute, coefficients, t), size))
                    from_ = b.gep(compute, base, b.load("i64", b.gep("i64", shifts, t), 8))
                    return [element.multiply_add(b, width, coefficient, b.load(type_, b.gep(compute, from_, v * width), size), sums[v]) for v in range(VECTORS)]

                for v, value in enumerate(b.loop(0, w["taps"], 1, tap, old)):
                    b.store(type_, value, b.gep(compute, result, b.add(q, v * width)), size)
        with b.for_(0, w["out_height"]) as y:
            from_row = b.gep(compute, result, b.mul(y, w["pitch"]))
            to_row = b.gep(memory, out, b.mul(y, w["out_y"]))
            if facts.unit_out and width > 1:
                with b.for_(0, w["out_width"], width) as x:
                    mask = bit_mask(b, width, 0, b.sub(w["out_width"], x))
                    value = element.narrow(b, width, b.load(type_, b.gep(compute, from_row, x), size))
                    b.masked_store(memory, width, value, b.gep(memory, to_row, x), mask, element.memory_bytes)
            else:
                with b.for_(0, w["out_width"]) as x:
                    value = element.narrow(b, 1, b.load(compute, b.gep(compute, from_row, x), size))
                    b.store(memory, value, b.gep(memory, to_row, b.mul(x, w["out_x"])), element.memory_bytes)
        if has_epilogue:
            b.call("void", "epilogue", [
                ("ptr", "%args"), ("i64", n), ("i64", c), ("i64", b.add(c, 1)), ("i64", "0"),
                ("i64", b.mul(w["out_height"], w["out_width"])),
            ], declare=False)  # fmt: skip


# -- The kernel of the weight's gradient, products of two planes (what they are: convolution_depthwise.py) -----------
_TAPS = 8  # weights computed together


def weight_body(facts: Facts, g_kind: str, b: Builder, w: dict[str, str]) -> None:
    """Weight gradient: a unit is one output channel, all its images in order."""
    element, width = facts.element, facts.width
    compute, size, memory = element.compute, element.compute_bytes, element.memory
    type_ = vector(compute, width)
    plane = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    spread = b.gep("i8", plane, w["spread_at"])
    b.allocas.append(f"  %lanes = alloca [{width} x {compute}], align 64")
    clear(b, element, width, plane, w["total"])
    clear(b, element, width, spread, w["spread"])
    last_tap = b.sub(w["taps"], 1)
    with b.for_("%begin", "%end") as o:
        c = b.op(f"udiv i64 {o}, {w['multiplier']}")
        with b.for_(0, w["taps"], _TAPS) as t:
            # Taps beyond the last repeat the last; their sums are not stored.
            places = [b.gep(compute, plane, b.load("i64", b.gep("i64", w["shifts"], b.min(b.add(t, i), last_tap)), 8)) for i in range(_TAPS)]
            with b.fold(0, w["batch"], 1, [(type_, element.zero(width))] * _TAPS) as (n, totals):
                fill_plane(b, facts, w, b.gep(memory, w["x"], b.add(b.mul(n, w["x_batch"]), b.mul(c, w["x_channel"]))), plane)
                g = b.gep(memory, w["g"], b.add(b.mul(n, w["g_batch"]), b.mul(o, w["g_channel"])))
                with b.for_(0, w["g_height"]) as y:
                    to = b.gep(compute, spread, b.mul(y, w["pitch"]))
                    copy_row(b, element, width, g_kind, b.gep(memory, g, b.mul(y, w["g_y"])), w["g_width"], w["g_x"], to)
                zero = [(type_, element.zero(width))] * _TAPS
                with b.fold(0, b.mul(w["pitch"], w["g_height"]), width, zero) as (q, ours):
                    left = b.load(type_, b.gep(compute, spread, q), size)
                    ours[:] = [
                        element.multiply_add(b, width, left, b.load(type_, b.gep(compute, place, q), size), old)
                        for place, old in zip(places, ours, strict=True)
                    ]
                totals[:] = [element.add(b, width, old, new) for old, new in zip(totals, ours, strict=True)]
            for i, total in enumerate(totals):

                def store(i: int = i, total: str = total) -> None:
                    b.store(type_, total, "%lanes", 64)

                    def lane(at: str, sum_: str) -> list[str]:
                        return [element.add(b, 1, sum_, b.load(compute, b.gep(compute, "%lanes", at), size))]

                    (value,) = b.loop(0, width, 1, lane, [(compute, element.zero(1))])
                    tap = b.add(t, i)
                    ty, tx = b.op(f"udiv i64 {tap}, {w['taps_x']}"), b.op(f"urem i64 {tap}, {w['taps_x']}")
                    at = b.add(b.mul(o, w["weight_channel"]), b.add(b.mul(ty, w["weight_y"]), b.mul(tx, w["weight_x"])))
                    b.store(memory, element.narrow(b, 1, value), b.gep(memory, w["out"], at), element.memory_bytes)

                with b.if_(b.op(f"icmp slt i64 {b.add(t, i)}, {w['taps']}")):
                    store()
