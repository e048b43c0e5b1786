"""Depthwise convolutions: images laid out as planes, and the kernel of results and of input gradients (what they are: convolution_depthwise.py)."""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.kernels.convolution_patches import bit_mask, masked_read
from flambeau.compiler.kernels.matmul_element import Element

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
