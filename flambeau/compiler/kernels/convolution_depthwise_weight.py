"""Depthwise convolutions: the kernel of the weight's gradient, products of two planes (what they are: convolution_depthwise.py)."""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.kernels.convolution_depthwise_planes import Facts, clear, copy_row, fill_plane

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

            def image(n: str, *sums: str) -> list[str]:
                fill_plane(b, facts, w, b.gep(memory, w["x"], b.add(b.mul(n, w["x_batch"]), b.mul(c, w["x_channel"]))), plane)
                g = b.gep(memory, w["g"], b.add(b.mul(n, w["g_batch"]), b.mul(o, w["g_channel"])))
                with b.for_(0, w["g_height"]) as y:
                    to = b.gep(compute, spread, b.mul(y, w["pitch"]))
                    copy_row(b, element, width, g_kind, b.gep(memory, g, b.mul(y, w["g_y"])), w["g_width"], w["g_x"], to)

                def step(q: str, *inner: str) -> list[str]:
                    left = b.load(type_, b.gep(compute, spread, q), size)
                    return [
                        element.multiply_add(b, width, left, b.load(type_, b.gep(compute, place, q), size), old)
                        for place, old in zip(places, inner, strict=True)
                    ]

                zero = [(type_, element.zero(width))] * _TAPS
                ours = b.loop(0, b.mul(w["pitch"], w["g_height"]), width, step, zero)
                return [element.add(b, width, old, new) for old, new in zip(sums, ours, strict=True)]

            totals = b.loop(0, w["batch"], 1, image, [(type_, element.zero(width))] * _TAPS)
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
