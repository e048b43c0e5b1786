"""Pooling, backward: the gradients of a plane, added up in the order of the windows by one thread (pool.py)."""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.kernels.convolution_patches import masked_read
from flambeau.compiler.kernels.pool_windows import Facts, divide, divisors, store_lanes


def maximum_gradient(b: Builder, facts: Facts, w: dict[str, str], source: str, out: str, indices: str) -> None:
    """Add the gradients of all windows to a zeroed plane in scratch, then bring the plane out."""
    element = facts.element
    compute, size, memory = element.compute, element.compute_bytes, element.memory
    plane = w["scratch"]
    pixels = b.mul(w["height"], w["width"])
    _clear(b, facts, plane, pixels)
    with b.for_(0, w["out_height"]) as oy:
        line = b.gep(memory, source, b.mul(oy, w["source_y"]))
        index_line = b.gep("i64", indices, b.mul(oy, w["index_y"]))
        with b.for_(0, w["out_width"]) as ox:
            at = b.load("i64", b.gep("i64", index_line, b.mul(ox, w["index_x"])), 8)
            value = element.widen(b, 1, b.load(memory, b.gep(memory, line, b.mul(ox, w["source_x"])), element.memory_bytes))
            # The indices come from max_pool, but a caller may hand in any: never write outside the plane.
            with b.if_(b.op(f"icmp ult i64 {at}, {pixels}")):
                place = b.gep(compute, plane, at)
                b.store(compute, element.add(b, 1, b.load(compute, place, size), value), place, size)
    with b.for_(0, w["height"]) as y:
        _bring_row(b, facts, w, b.gep(compute, plane, b.mul(y, w["width"])), out, y)


def _clear(b: Builder, facts: Facts, at: str, count: str) -> None:
    """Zeros, in whole vectors."""
    element, width = facts.element, facts.width
    type_ = vector(element.compute, width)
    with b.for_(0, count, width) as i:
        b.store(type_, element.zero(width), b.gep(element.compute, at, i), element.compute_bytes)


def _bring_row(b: Builder, facts: Facts, w: dict[str, str], line: str, out: str, y: str) -> None:
    """Store row y of the result from a line of sums."""
    element, width = facts.element, facts.width
    row = b.gep(element.memory, out, b.mul(y, w["out_y"]))
    with b.for_(0, w["width"], width) as x:
        sums = b.load(vector(element.compute, width), b.gep(element.compute, line, x), element.compute_bytes)
        value, left = element.narrow(b, width, sums), b.sub(w["width"], x)
        store_lanes(b, element.memory, element.memory_bytes, width, facts.unit_out, value, row, x, left, w["out_x"])


def average_gradient(b: Builder, facts: Facts, w: dict[str, str], source: str, out: str, indices: str) -> None:
    """Add the shares of all windows to a zeroed plane in scratch, then bring the plane out.

    A row of the plane lies by phases, x = j step + p at p pitch + j: there, the windows that reach neighbours are neighbours, too,
    so that vectors of pixels take vectors of shares, in the order of the windows (PyTorch's). The row of shares has zeros on both
    sides, and a phase whole vectors, so nothing is masked.
    """
    element, width = facts.element, facts.width
    compute, size, memory = element.compute, element.compute_bytes, element.memory
    type_ = vector(compute, width)
    step = w["step_x"]

    def rounded_up(count: str) -> str:
        return b.mul(b.op(f"udiv i64 {b.add(count, width - 1)}, {width}"), width)

    whole = b.op(f"udiv i64 {b.add(w['width'], b.sub(step, 1))}, {step}")
    pitch = rounded_up(whole)
    phases = b.min(step, w["width"])
    row = b.mul(pitch, phases)
    # Taps of a phase: `taps` of them, or one less for those that begin at `full_taps`; and what the first phase begins with.
    taps = b.op(f"udiv i64 {b.add(w['kernel_x'], b.sub(step, 1))}, {step}")
    full_taps = b.sub(w["kernel_x"], b.mul(b.sub(taps, 1), step))
    padding = b.sub(0, w["base_x"])
    first_tap, last_window = b.op(f"urem i64 {padding}, {step}"), b.op(f"udiv i64 {padding}, {step}")
    full_columns = b.sub(w["width"], b.mul(b.sub(whole, 1), step))
    plane = w["scratch"]
    everything = b.op(f"udiv i64 {w['scratch_bytes']}, {size}")
    _clear(b, facts, plane, b.mul(b.op(f"udiv i64 {everything}, {width}"), width))
    shares = b.gep(compute, plane, b.add(b.mul(w["height"], row), rounded_up(w["kernel_x"])))
    with b.for_(0, w["out_height"]) as oy:
        line = b.gep(memory, source, b.mul(oy, w["source_y"]))
        with b.for_(0, w["out_width"], width) as ox:
            left = b.sub(w["out_width"], ox)
            read = masked_read(b, memory, width, element.memory_bytes, facts.kind, "0", left, w["source_x"])
            value = element.widen(b, width, read(b.gep(memory, line, b.mul(ox, w["source_x"]))))
            value = divide(b, facts, value, divisors(b, facts, w, ox, oy))
            store_lanes(b, compute, size, width, True, value, shares, ox, left, "1")
        y_first = b.add(b.mul(oy, w["step_y"]), w["base_y"])
        top, bottom = b.max(y_first, 0), b.min(b.add(y_first, w["kernel_y"]), w["height"])

        def phase(p: str, first: str, last: str) -> list[str]:
            # Column j is in the windows up to j + last, there by tap `first`, and in those before, each by a tap `step` further.
            full = b.op(f"icmp slt i64 {first}, {full_taps}")
            count = b.op(f"select i1 {full}, i64 {taps}, i64 {b.sub(taps, 1)}")
            with b.for_(0, pitch, width) as j:
                start = b.gep(compute, shares, b.add(b.add(j, b.add(last, 1)), b.sub(0, count)))
                with b.for_(top, bottom) as y:
                    place = b.gep(compute, plane, b.add(b.add(b.mul(y, row), b.mul(p, pitch)), j))

                    def window(k: str, total: str) -> list[str]:
                        return [element.add(b, width, total, b.load(type_, b.gep(compute, start, k), size))]

                    (total,) = b.loop(0, count, 1, window, [(type_, b.load(type_, place, size))])
                    b.store(type_, total, place, size)
            following = b.add(first, 1)
            wraps = b.op(f"icmp eq i64 {following}, {step}")
            return [b.op(f"select i1 {wraps}, i64 0, i64 {following}"), b.add(last, b.op(f"zext i1 {wraps} to i64"))]

        b.loop(0, phases, 1, phase, [("i64", first_tap), ("i64", last_window)])
    with b.for_(0, w["height"]) as y:
        line = b.gep(compute, plane, b.mul(y, row))
        if facts.unit_step:
            _bring_row(b, facts, w, line, out, y)
        else:
            to = b.gep(memory, out, b.mul(y, w["out_y"]))
            with b.for_(0, phases) as p:
                full = b.op(f"icmp slt i64 {p}, {full_columns}")
                columns = b.op(f"select i1 {full}, i64 {whole}, i64 {b.sub(whole, 1)}")
                with b.for_(0, columns) as j:
                    value = element.narrow(b, 1, b.load(compute, b.gep(compute, line, b.add(b.mul(p, pitch), j)), size))
                    b.store(memory, value, b.gep(memory, to, b.mul(b.add(b.mul(j, step), p), w["out_x"])), element.memory_bytes)
