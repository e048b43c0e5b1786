"""Convolutions: padded planes in a thread's scratch: neighbouring results find the pixels of a tap next to each other.

A plane holds one channel of a block of source rows with its padding. A stride deals its rows and columns to
sub-planes by their residue. The pixel that tap t needs for result (y, x) of the block lies at y * pitch + x + shift(t).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters, vector
from flambeau.compiler.kernels.convolution_patches import Geometry, masked_read
from flambeau.compiler.kernels.convolution_problem import load_record
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import Element
from flambeau.symbols import maximum

COPY_PLANES: Final = Parameters("phase* source* planes* channels y x rows")


@dataclass(frozen=True, slots=True)
class Phase:
    """Words of one phase. Source row y is row (y + top) / deal_y of sub-plane (y + top) % deal_y; columns likewise."""

    taps_y: int
    taps_x: int
    base_y: int  # tap row t of result row y reads source row y * deal_y + base_y + t * tap_y
    tap_y: int
    shifts_at: int  # index of its first shift among the kernel's words
    top: int
    left: int
    deal_y: int
    deal_x: int
    reach_y: int  # rows of a sub-plane beyond those of the block
    sub_rows: int
    pitch: int
    plane: int  # elements from channel to channel
    source_height: int
    source_width: int
    stride_channel: int
    stride_y: int
    stride_x: int
    height: int  # output pixels of the phase
    width: int
    out_offset: int
    out_y: int
    out_x: int
    weights_offset: int
    channel_block: int


PHASE = [f.name for f in fields(Phase)]


def phase_of(
    g: Geometry, before: tuple[int, int], reach_y: int, sub_rows: int, pitch: int, plane: int, shifts_at: int = 0, weights_offset: int = 0,
    channel_block: int = 0,
) -> Phase:  # fmt: skip
    """A geometry in such planes. `before`: padding above and left of the source."""
    return Phase(
        g.taps_y, g.taps_x, g.base_y, g.tap_y, shifts_at, *before, g.step_y, g.step_x, reach_y, sub_rows, pitch, plane, g.source_height, g.source_width,
        g.stride_channel, g.stride_y, g.stride_x, g.pixels // maximum(1, g.width), g.width, g.out_offset, g.out_y, g.out_x, weights_offset, channel_block,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a geometry: padding before the source, sub-plane rows beyond the pixel's, the place of each tap."""

    before: int
    reach: int
    places: tuple[int, ...]


def axes(g: Geometry) -> tuple[Axis, Axis]:
    return _axis(g.taps_y, g.step_y, g.base_y, g.tap_y), _axis(g.taps_x, g.step_x, g.base_x, g.tap_x)


def _axis(taps: int, step: int, base: int, tap: int) -> Axis:
    places = [base + t * tap for t in range(taps)] or [0]
    lowest = min(places)
    return Axis(-lowest, (max(places) - lowest) // step, tuple(place - lowest for place in places))


def shared_zeros(axis: Axis, step: int, size: int, source: int, blocks: int) -> int:
    """Places at the end of a row of planes that are zero, and so may be the next row's first zeros."""
    if step > 1 or blocks > 1:
        return 0
    return max(0, min(axis.before, size + axis.reach - axis.before - source, 16))


def plane_elements(deal: int, sub_rows: int, pitch: int) -> int:
    """Elements from plane to plane: an odd number of cache lines (of 16 float32).

    Planes a power of two apart would share a few sets of the cache.
    """
    lines = round_up(deal * sub_rows * pitch, 16) // 16
    return 16 * (lines + 1 - lines % 2)


def shifts(g: Geometry, y: Axis, x: Axis, sub_rows: int, pitch: int) -> list[int]:
    """shift(t) of each tap of a geometry, tap rows first."""
    if not g.taps:
        return []
    return [(((py % g.step_y) * g.step_x + px % g.step_x) * sub_rows + py // g.step_y) * pitch + px // g.step_x for py in y.places for px in x.places]


def balanced(total: int, most: int) -> int:
    """The size of blocks of at most `most`, as equal as can be."""
    return ceil_div(total, ceil_div(total, most)) if total > 0 else 1


def copy_planes(b: Builder, element: Element, width: int, kind: str) -> str:
    """Text of `copy_planes(phase, source, planes, channels, y, x, rows)`: the planes of a block that starts at (y, x)."""
    copy_block(b, element, width, kind, load_record(b, "%phase", PHASE), "%source", "%planes", "%channels", "%y", "%x", "%rows")
    return b.define("copy_planes", COPY_PLANES)


def copy_block(
    b: Builder, element: Element, width: int, kind: str, w: dict[str, str], source: str, planes: str, channels: str, y: str, x: str, rows: str,
    clean: bool = False,
) -> None:  # fmt: skip
    """Copy the planes of a block that starts at (y, x), of the phase `w`. `clean`: there are zeros around the pixels already.

    Rows are written in ascending order with whole vectors: what one writes beyond its end, the next overwrites.
    """
    last = b.add(rows, w["reach_y"])
    stored, loaded = vector(element.compute, width), vector(element.memory, width)
    with b.for_(0, channels) as c:
        image = b.gep(element.memory, source, b.mul(c, w["stride_channel"]))
        plane = b.gep(element.compute, planes, b.mul(c, w["plane"]))
        with b.for_(0, w["deal_y"]) as ry, b.for_(0, w["deal_x"]) as rx:
            sub = b.mul(b.add(b.mul(ry, w["deal_x"]), rx), w["sub_rows"])
            # Column q of the sub-plane is source column (x + q) * deal_x + rx - left.
            start = b.add(b.sub(b.mul(x, w["deal_x"]), w["left"]), rx)
            low, high = b.sub(0, start), b.sub(w["source_width"], start)

            def dealt(ends: tuple[str, str], deal: str) -> Iterator[str]:
                """How many places of a sub-plane lie before each of two places among all."""
                up = b.sub(deal, 1)
                return (b.op(f"udiv i64 {b.add(b.max(end, 0), up)}, {deal}") for end in ends)

            if kind != "unit":
                low, high = dealt((low, high), w["deal_x"])
            low = b.max(low, 0)
            first_whole = low if clean else b.min(b.op(f"and i64 {b.add(low, width - 1)}, {-width}"), w["pitch"])
            distance = b.mul(w["deal_x"], w["stride_x"])
            first, after = "0", last
            if clean:
                before = b.sub(b.sub(w["top"], ry), b.mul(y, w["deal_y"]))
                first, after = dealt((before, b.add(before, w["source_height"])), w["deal_y"])
                after = b.min(last, after)
            with b.for_(first, after) as r:
                row = b.add(b.sub(b.mul(b.add(y, r), w["deal_y"]), w["top"]), ry)
                there = w["pitch"] if clean else b.op(f"select i1 {b.op(f'icmp ult i64 {row}, ' + w['source_height'])}, i64 {w['pitch']}, i64 0")
                reachable = b.min(high, there)
                line = b.add(b.mul(row, w["stride_y"]), b.mul(start, w["stride_x"]))
                origin = b.gep(element.memory, image, line)
                target = b.gep(element.compute, plane, b.mul(b.add(sub, r), w["pitch"]))

                def put(q: str, value: str) -> None:
                    at = b.gep(element.compute, target, q)
                    b.store(stored, element.widen(b, width, value), at, element.compute_bytes)

                def chunks(first: str | int, end: str) -> None:
                    with b.for_(first, end, width) as q:
                        low_q, high_q = "0" if clean else b.sub(low, q), b.sub(reachable, q)
                        read = masked_read(b, element.memory, width, element.memory_bytes, kind, low_q, high_q, distance)
                        put(q, read(b.gep(element.memory, origin, b.mul(q, distance))))

                end = reachable if clean else w["pitch"]
                if kind != "unit" or width == 1:
                    chunks(low if clean else 0, end)
                else:  # masks are for the ends only
                    if not clean:
                        chunks(0, first_whole)
                    whole = b.op(f"and i64 {b.sub(reachable, low) if clean else reachable}, {-width}")
                    whole = b.max(b.add(low, whole) if clean else whole, first_whole)
                    with b.for_(first_whole, whole, width) as q:
                        put(q, b.load(loaded, b.gep(element.memory, origin, q), element.memory_bytes))
                    chunks(whole, end)


def write_table(b: Builder, arguments: str, phase: dict[str, str], table: str, channels: str, by_rows: bool) -> None:
    """Write the places of all taps in `channels` planes, in the order (channel, tap row, tap column).

    `by_rows`: in the order (tap row, channel, tap column) instead, so that some tap rows are consecutive.
    """
    first = b.gep("i64", arguments, phase["shifts_at"])
    with b.for_(0, channels) as c:
        start = b.mul(c, phase["plane"])
        with b.for_(0, phase["taps_y"]) as ty:
            if by_rows:
                at = b.mul(b.add(b.mul(ty, channels), c), phase["taps_x"])
            else:
                at = b.mul(b.add(b.mul(c, phase["taps_y"]), ty), phase["taps_x"])
            with b.for_(0, phase["taps_x"]) as tx:
                shift = b.load("i64", b.gep("i64", first, b.add(b.mul(ty, phase["taps_x"]), tx)), 8)
                b.store("i64", b.add(start, shift), b.gep("i64", table, b.add(at, tx)), 8)


def tap_rows(b: Builder, phase: dict[str, str], y: str) -> tuple[str, str]:
    """The tap rows low <= t < high that meet the source for result row y; the others meet its padding."""
    start = b.add(b.mul(y, phase["deal_y"]), phase["base_y"])
    ahead = b.op(f"icmp sgt i64 {phase['tap_y']}, 0")
    step = b.max(b.max(phase["tap_y"], b.sub(0, phase["tap_y"])), 1)
    last = b.sub(b.sub(phase["source_height"], 1), start)
    before = b.op(f"select i1 {ahead}, i64 {b.sub(0, start)}, i64 {b.sub(0, last)}")
    after = b.op(f"select i1 {ahead}, i64 {last}, i64 {start}")
    low = b.op(f"udiv i64 {b.add(b.max(before, 0), b.sub(step, 1))}, {step}")
    high = b.min(b.op(f"udiv i64 {b.max(b.add(after, step), 0)}, {step}"), phase["taps_y"])
    return low, b.max(low, high)


def fetch_lines(b: Builder, element: Element, start: str, length: str) -> None:
    """Ask for the cache lines of `length` elements, into the second level: meanwhile the multiply-adds go on."""

    with b.for_(0, length, 64 // element.memory_bytes) as at:
        b.prefetch(b.gep(element.memory, start, at))


def fetch_planes(
    b: Builder, element: Element, phase: dict[str, str], source: str, y: str, x: str, low: str, high: str
) -> None:  # fmt: skip
    """Ask for what `copy_planes` will read for a block that starts at (y, x): its channels low <= c < high."""
    y_low = b.max(b.sub(b.mul(y, phase["deal_y"]), phase["top"]), 0)
    x_low = b.max(b.sub(b.mul(x, phase["deal_x"]), phase["left"]), 0)
    y_high = b.min(b.add(y_low, b.mul(phase["sub_rows"], phase["deal_y"])), phase["source_height"])
    wide = b.min(b.mul(phase["pitch"], phase["deal_x"]), b.sub(phase["source_width"], x_low))
    length = b.add(b.mul(b.sub(b.sub(y_high, y_low), 1), phase["stride_y"]), wide)
    at = b.add(b.mul(y_low, phase["stride_y"]), b.mul(x_low, phase["stride_x"]))
    start = b.gep(element.memory, source, at)
    with b.for_(low, high) as c:
        fetch_lines(b, element, b.gep(element.memory, start, b.mul(c, phase["stride_channel"])), length)
