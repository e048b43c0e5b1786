"""Convolutions: the packing of the weights, once a run, into a temporary of the compute type.

A panel holds `height` output rows of the product by K: element (k, row) at k * height + row, zeros for the rows beyond
the last. k = (block of channels, tap row, channel of the block, tap column).
Panels lie in the order [group][phase][panel].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.kernel import Address, Kernel, Word
from flambeau.compiler.kernels.convolution_patches import GATHER, masked_read
from flambeau.compiler.kernels.convolution_problem import Problem, load_record, numel
from flambeau.compiler.kernels.description import describe
from flambeau.compiler.kernels.matmul_blocking import ceil_div
from flambeau.compiler.kernels.matmul_element import Element
from flambeau.symbols import maximum

# Of a phase: its taps, where its panels begin in a group's, the channels of a block, and which of the kernel's taps it has.
TAPS = ("taps_y", "taps_x", "weights_offset", "channel_block", "first_y", "skip_y", "first_x", "skip_x")


def pack_weights(
    p: Problem, gradient: bool, element: Element, height: int, phases: Sequence[Sequence[int]], packed: int, weights_group: int, node: int
) -> Kernel:  # fmt: skip
    """The kernel that packs them; `phases`: the words of TAPS of each."""
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    out_stride, in_stride, tap_row, tap_column = p.w.strides
    row, channel = (in_stride, out_stride) if gradient else (out_stride, in_stride)
    row_panels = ceil_div(rows, height)
    words: dict[str, Word] = {
        "weights": p.w.word, "packed": Address(packed), "row_panels": row_panels, "phases": len(phases), "rows": rows, "channels": channels,
        "group": p.group_outputs * out_stride, "row": row, "channel": channel, "tap_row": tap_row, "tap_column": tap_column,
        "weights_group": weights_group,
    }  # fmt: skip
    bits = p.target.vector_bits
    lanes = gcd(height, max(1, bits // (8 * element.compute_bytes)))
    key = f"convolution:weights:{element.name}:{height}:{lanes}:{bits}"
    count = numel(p.w)
    return describe(
        f"convolution_weights_{element.name}", key, partial(_pack, element, height, lanes), words,
        {"taps": [word for phase in phases for word in phase]}, reads=(p.w.root,), writes=(packed,), units=p.groups * row_panels,
        bytes=2 * count * element.compute_bytes,
        nodes=(node,), min_units_per_thread=maximum(1, 16384 * p.groups * row_panels // maximum(1, count)),
    )  # fmt: skip


def _pack(element: Element, height: int, lanes: int, b: Builder, w: dict[str, str]) -> None:
    """`lanes` rows are gathered at a time, all their K: the rows of a whole panel would share a few sets of the cache."""
    with b.for_("%begin", "%end") as u:
        g, panel = b.op(f"udiv i64 {u}, {w['row_panels']}"), b.op(f"urem i64 {u}, {w['row_panels']}")
        r0 = b.mul(panel, height)
        valid = b.min(height, b.sub(w["rows"], r0))
        source = b.gep(element.memory, w["weights"], b.add(b.mul(g, w["group"]), b.mul(r0, w["row"])))
        with b.for_(0, w["phases"]) as f:
            field = load_record(b, b.gep("i64", w["taps"], b.mul(f, len(TAPS))), TAPS)
            taps = b.mul(field["taps_y"], field["taps_x"])
            panel_at = b.mul(r0, b.mul(w["channels"], taps))
            target = b.gep(
                element.compute,
                w["packed"],
                b.add(b.add(b.mul(g, w["weights_group"]), field["weights_offset"]), panel_at),
            )
            origin = b.gep(
                element.memory,
                source,
                b.add(b.mul(field["first_y"], w["tap_row"]), b.mul(field["first_x"], w["tap_column"])),
            )
            step_y, step_x = b.mul(field["skip_y"], w["tap_row"]), b.mul(field["skip_x"], w["tap_column"])

            def channel(r: str, read: Callable[[str], str], c: str) -> None:
                inside = b.op(f"urem i64 {c}, {field['channel_block']}")
                block = b.sub(c, inside)
                block_channels = b.min(field["channel_block"], b.sub(w["channels"], block))
                with b.for_(0, field["taps_y"]) as ty:
                    row_at = b.add(b.mul(block, taps), b.mul(b.add(b.mul(ty, block_channels), inside), field["taps_x"]))
                    with b.for_(0, field["taps_x"]) as tx:
                        at = b.add(b.mul(c, w["channel"]), b.add(b.mul(ty, step_y), b.mul(tx, step_x)))
                        to = b.gep(element.compute, target, b.mul(b.add(row_at, tx), height))

                        value = element.widen(b, lanes, read(b.gep(element.memory, origin, b.add(at, b.mul(r, w["row"])))))
                        type_ = vector(element.compute, lanes)
                        b.store(type_, value, b.gep(element.compute, to, r), element.compute_bytes)

            with b.for_(0, height, lanes) as r:
                left = b.sub(valid, r)
                read = masked_read(b, element.memory, lanes, element.memory_bytes, GATHER, "0", left, w["row"])
                with b.for_(0, w["channels"]) as i:
                    channel(r, read, i)
