"""Pooling, forward: the loops over windows of a plane, maxima and averages (what they do: pool.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.kernels.convolution_patches import GATHER, PAIR, bit_mask, masked_read, store_lanes
from flambeau.compiler.kernels.matmul_element import Element


@dataclass(frozen=True, slots=True)
class Facts:
    """`inside`: no window reaches the padding. `kernel`: the window's size where it is unrolled, else (0, 0).

    `index`: the integers that count the elements of a plane, "" where no indices are wanted. `unit_step`: of an average's gradient, windows
    that move by one column.
    """

    op: str
    element: Element
    width: int
    vector_bits: int
    kind: str
    unit_out: bool
    inside: bool
    kernel: tuple[int, int]
    index: str
    unit_step: bool

    def key(self) -> str:
        return (
            f"pool:{self.op}:{self.element.name}:{self.width}:{self.vector_bits}:{self.kind}:"
            f"{'unit' if self.unit_out else 'strided'}:{'inside' if self.inside else 'edges'}:"
            f"{self.kernel[0]}x{self.kernel[1]}{f':{self.index}' * bool(self.index)}{':step' * self.unit_step}"
        )


def _taps(b: Builder, count: str, fact: int, body: Any, carry: list[tuple[str, str]]) -> list[str]:
    """`body(tap, *carry) -> carry` for each tap: unrolled where their number is a fact."""
    if not fact:
        return b.loop(0, count, 1, body, carry)
    values = [value for _, value in carry]
    for t in range(fact):
        values = body(str(t), *values)
    return values


def _valid_range(b: Builder, facts: Facts, w: dict[str, str], x: str, left: str) -> tuple[str, str]:
    """Lanes low <= i < high whose source column x + i * step_x lies in the image; `left` lanes are wanted."""
    if facts.inside:
        return "0", left
    up = b.sub(w["step_x"], 1)
    low, high = (b.op(f"udiv i64 {b.add(b.max(v, 0), up)}, {w['step_x']}") for v in (b.sub(0, x), b.sub(w["width"], x)))
    return low, b.min(high, left)


def _windows(b: Builder, facts: Facts, w: dict[str, str], source: str, start: Any, tap: Any, finish: Any) -> None:
    """For each vector of windows: `start()` gives the carried values, `tap` updates them, `finish` stores them.

    `tap(values, mask, y, x, carry)`: lanes of source elements (y, x + i * step_x); `finish(ox, oy, left, carry)`.
    """
    element, width = facts.element, facts.width
    distance = b.mul(w["step_x"], w["source_x"])
    with b.for_(0, w["out_width"], width) as ox:
        left = b.sub(w["out_width"], ox)
        x_first = b.add(b.mul(ox, w["step_x"]), w["base_x"])

        def column(tx: str, wanted: str) -> tuple[str, str, Callable[[str], str]]:
            """(x of lane 0, lanes in the image, their reading) of a column of taps."""
            x = b.add(x_first, b.mul(tx, w["tap_x"]))
            low, high = _valid_range(b, facts, w, x, wanted)
            read = masked_read(b, element.memory, width, element.memory_bytes, facts.kind, low, high, distance)
            return x, bit_mask(b, width, low, high), read

        columns = [column(str(tx), left) for tx in range(facts.kernel[1])]

        def fetch(ox: str, oy: str) -> None:
            """Fetch the same pixels of the next plane: from top to bottom, the processor does not foresee them."""
            for y in range(min(2, facts.kernel[0])):
                row = b.mul(b.add(b.mul(oy, w["step_y"]), y), w["source_y"])
                at = b.gep(element.memory, source, b.add(b.add(row, b.mul(ox, w["step_x"])), w["source_channel"]))
                for line in range(2 if facts.kind == PAIR else 1):
                    b.prefetch(b.gep("i8", at, 64 * line))

        with b.for_(0, w["out_height"]) as oy:
            y_first = b.add(b.mul(oy, w["step_y"]), w["base_y"])

            def tap_row(ty: str, *carry: str) -> list[str]:
                y = b.add(y_first, b.mul(ty, w["tap_y"]))
                inside = "true" if facts.inside else b.op(f"icmp ult i64 {y}, {w['height']}")

                def unrolled(values: list[str]) -> list[str]:
                    # A row of the padding: the first row of the plane is read instead, and no lane is taken.
                    line = b.gep(element.memory, source, b.mul(b.op(f"select i1 {inside}, i64 {y}, i64 0"), w["source_y"]))
                    type_, mask_type = vector(element.compute, width), vector("i1", width)
                    for x, lanes, read in columns:
                        found = element.widen(b, width, read(b.gep(element.memory, line, b.mul(x, w["source_x"]))))
                        if not facts.inside:
                            lanes = b.op(f"and {mask_type} {lanes}, {b.splat('i1', width, inside)}")
                            if facts.op == "average_pool":
                                found = b.op(f"select {mask_type} {lanes}, {type_} {found}, {type_} {element.zero(width)}")
                        values = tap(found, lanes, y, x, values)
                    return values

                if columns:
                    return unrolled(list(carry))
                line = b.gep(element.memory, source, b.mul(y, w["source_y"]))
                wanted = left if facts.inside else b.op(f"select i1 {inside}, i64 {left}, i64 0")
                types = [type_ for type_, _ in carry_types]
                with b.fold(0, w["kernel_x"], 1, list(zip(types, carry, strict=True))) as (tx, inner):
                    x, lanes, read = column(tx, wanted)
                    values = element.widen(b, width, read(b.gep(element.memory, line, b.mul(x, w["source_x"]))))
                    inner[:] = list(tap(values, lanes, y, x, list(inner)))
                return inner

            if columns and facts.kind != GATHER:
                fetch(ox, oy)
            carry_types = start()
            finish(ox, oy, left, _taps(b, w["kernel_y"], facts.kernel[0], tap_row, carry_types))


def maxima(b: Builder, facts: Facts, w: dict[str, str], source: str, out: str, indices: str) -> None:
    """Values and flat indices of the maxima. A NaN replaces anything, the first of equals stays (PyTorch's rule).

    A window without a pixel has the least of all values (PyTorch's too) and the index -1.
    """
    element, width = facts.element, facts.width
    values_type, mask_type = vector(element.compute, width), vector("i1", width)
    index_type = vector(facts.index or "i32", width)
    lanes = "<" + ", ".join(f"{facts.index} {i}" for i in range(width)) + ">" if width > 1 else "0"

    def index(value: str) -> str:
        return b.splat(facts.index, width, value if facts.index == "i64" else b.op(f"trunc i64 {value} to i32"))

    step = b.op(f"mul {index_type} {lanes}, {index(w['step_x'])}") if facts.index else ""
    every = "true" if width == 1 else "<" + ", ".join(["i1 true"] * width) + ">"

    def tap(values: str, mask: str, y: str, x: str, carry: list[str]) -> list[str]:
        best, seen, *places = carry
        if element.is_float:
            better = b.op(f"fcmp ogt {values_type} {values}, {best}")
            is_nan = b.op(f"fcmp uno {values_type} {values}, {values}")
            better = b.op(f"or {mask_type} {better}, {is_nan}")
        else:
            unsigned = element.name in ("uint8", "bool")
            better = b.op(f"icmp {'ugt' if unsigned else 'sgt'} {values_type} {values}, {best}")
        first = b.op(f"xor {mask_type} {seen}, {every}")
        take = b.op(f"and {mask_type} {b.op(f'or {mask_type} {better}, {first}')}, {mask}")
        found = [b.op(f"select {mask_type} {take}, {values_type} {values}, {values_type} {best}"), b.op(f"or {mask_type} {seen}, {mask}")]
        if facts.index:
            here = b.op(f"add {index_type} {step}, {index(b.add(b.mul(y, w['width']), x))}")
            found.append(b.op(f"select {mask_type} {take}, {index_type} {here}, {index_type} {places[0]}"))
        return found

    def finish(ox: str, oy: str, left: str, carry: list[str]) -> None:
        row = b.gep(element.memory, out, b.mul(oy, w["out_y"]))
        value = element.narrow(b, width, carry[0])
        store_lanes(b, element.memory, element.memory_bytes, width, facts.unit_out, value, row, ox, left, w["out_x"])
        if facts.index:
            row = b.gep("i64", indices, b.mul(oy, w["index_y"]))
            found = carry[2] if facts.index == "i64" else b.op(f"sext {index_type} {carry[2]} to {vector('i64', width)}")
            store_lanes(b, "i64", 8, width, facts.unit_out, found, row, ox, left, w["index_x"])

    def start() -> list[tuple[str, str]]:
        none = [(index_type, b.splat(facts.index, width, "-1"))] if facts.index else []
        return [(values_type, b.splat(element.compute, width, _least(element))), (mask_type, "false" if width == 1 else "zeroinitializer"), *none]

    _windows(b, facts, w, source, start, tap, finish)


def _least(element: Element) -> str:
    if element.is_float:
        return "0xFFF0000000000000"  # minus infinity
    return "0" if element.name in ("uint8", "bool") else str(-(1 << (8 * element.memory_bytes - 1)))


def _extent(b: Builder, w: dict[str, str], axis: str, start: str) -> str:
    """Number of elements of a window along an axis that the average counts. `start` may be a column of the padding."""
    size = w["height"] if axis == "y" else w["width"]
    end = b.min(b.add(start, w[f"kernel_{axis}"]), b.sub(size, w[f"base_{axis}"]))
    with_padding = b.sub(end, start)
    without = b.sub(b.min(end, size), b.max(start, 0))
    include = b.op(f"icmp ne i64 {w['include_pad']}, 0")
    return b.op(f"select i1 {include}, i64 {with_padding}, i64 {without}")


def divisors(b: Builder, facts: Facts, w: dict[str, str], ox: str, oy: str) -> str:
    """The divisors of a vector of windows, in the compute type."""
    element, width = facts.element, facts.width
    tall = _extent(b, w, "y", b.add(b.mul(oy, w["step_y"]), w["base_y"]))
    given = b.op(f"icmp ne i64 {w['divisor']}, 0")
    if facts.inside:
        area = b.op(f"select i1 {given}, i64 {w['divisor']}, i64 {b.mul(w['kernel_y'], w['kernel_x'])}")
        return b.splat(element.compute, width, _from_integer(b, element, 1, area))
    counts = f"{vector('i64', width)}"
    lanes = "<" + ", ".join(f"i64 {i}" for i in range(width)) + ">" if width > 1 else "0"

    def splat(value: str) -> str:
        return b.splat("i64", width, value)

    def extreme(name: str, x: str, y: str) -> str:
        suffix = "i64" if width == 1 else f"v{width}i64"
        return b.call(counts, f"llvm.{name}.{suffix}", [(counts, x), (counts, y)])

    start = b.op(f"mul {counts} {lanes}, {splat(w['step_x'])}")
    start = b.op(f"add {counts} {start}, {splat(b.add(b.mul(ox, w['step_x']), w['base_x']))}")
    end = b.op(f"add {counts} {start}, {splat(w['kernel_x'])}")
    end = extreme("smin", end, splat(b.sub(w["width"], w["base_x"])))
    with_padding = b.op(f"sub {counts} {end}, {start}")
    without = b.op(f"sub {counts} {extreme('smin', end, splat(w['width']))}, {extreme('smax', start, splat('0'))}")
    include = b.op(f"icmp ne i64 {w['include_pad']}, 0")
    wide = b.op(f"select i1 {include}, {counts} {with_padding}, {counts} {without}")
    area = b.op(f"mul {counts} {wide}, {splat(tall)}")
    area = b.op(f"select i1 {given}, {counts} {splat(w['divisor'])}, {counts} {area}")
    return _from_integer(b, element, width, area)


def _from_integer(b: Builder, element: Element, width: int, value: str) -> str:
    source, target = vector("i64", width), vector(element.compute, width)
    if element.is_float:
        return b.op(f"sitofp {source} {value} to {target}")
    return value if element.compute == "i64" else b.op(f"trunc {source} {value} to {target}")


def divide(b: Builder, facts: Facts, value: str, divisor: str) -> str:
    """Lanes beyond the row may have a divisor of 0: integers divide by 1 there."""
    element, width = facts.element, facts.width
    type_ = vector(element.compute, width)
    if element.is_float:
        return b.op(f"fdiv {type_} {value}, {divisor}")
    zero, one = element.zero(width), b.splat(element.compute, width, "1")
    is_zero = b.op(f"icmp eq {type_} {divisor}, {zero}")
    safe = b.op(f"select {vector('i1', width)} {is_zero}, {type_} {one}, {type_} {divisor}")
    return b.op(f"sdiv {type_} {value}, {safe}")


def averages(b: Builder, facts: Facts, w: dict[str, str], source: str, out: str, indices: str) -> None:
    element, width = facts.element, facts.width
    type_ = vector(element.compute, width)

    def tap(values: str, mask: str, y: str, x: str, carry: list[str]) -> list[str]:
        return [element.add(b, width, carry[0], values)]  # masked lanes are zero

    def finish(ox: str, oy: str, left: str, carry: list[str]) -> None:
        value = element.narrow(b, width, divide(b, facts, carry[0], divisors(b, facts, w, ox, oy)))
        row = b.gep(element.memory, out, b.mul(oy, w["out_y"]))
        store_lanes(b, element.memory, element.memory_bytes, width, facts.unit_out, value, row, ox, left, w["out_x"])

    _windows(b, facts, w, source, lambda: [(type_, element.zero(width))], tap, finish)
