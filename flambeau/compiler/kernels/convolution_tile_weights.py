"""Convolutions by the matrix unit: the packing of the weights, once a run.

    panels of 32 output channels, [step][part][two tiles of 16 output channels][32 channels] of 16-bit floats

A step is a tap of 32 channels, in the order (32 channels, tap row, tap column). A float32 has three bfloat16 parts or two float16
halves, a bfloat16 is its own. Channels beyond the last are zeros. The extent of a panel's elements (bfloat_parts.py) lies in its
header, and of halves the exponent of scale and the kind (float_halves.py): for them all is looked at before (convolution_judgement.py).

32 x 32 channels at a time are copied next to each other, so that the next ones are fetched meanwhile in whole lines, and
so that they lie in the first-level cache; the steps are then written one after the other. Where the taps do not
lie together, or are many, it is 32 x 32 channels of one tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernel import Address, Function, Kernel, Scratch, Word
from flambeau.compiler.kernels.bfloat_parts import split_in_order
from flambeau.compiler.kernels.convolution_judgement import LOOK, NOTES, clear_notes, judge, look_function, scale_of
from flambeau.compiler.kernels.convolution_patches import GATHER, bit_mask, masked_read
from flambeau.compiler.kernels.convolution_problem import Problem, load_record, numel
from flambeau.compiler.kernels.convolution_tile_pack import (
    COUNTS,
    DEEP,
    EXTENT,
    HEADER,
    ROWS,
    TILE_BYTES,
    WIDTH,
    clear_extent,
    extent_in_memory,
    put_extent,
)
from flambeau.compiler.kernels.description import describe, native
from flambeau.compiler.kernels.float_halves import halves_in_order
from flambeau.compiler.kernels.matmul_blocking import ceil_div
from flambeau.compiler.kernels.matmul_element import Element
from flambeau.symbols import maximum

_LINES = 4  # lines in registers: two vectors each
_MOST_TAPS = 9  # that are copied: 36 KiB of a first-level cache of 48 KiB
_FLOATS, _INTS, _SHORTS = (f"<{WIDTH} x {kind}>" for kind in ("float", "i32", "i16"))
_PANEL = (  # what the packing of a panel knows: the last words of the kernel, or somewhere among those of others
    "weights", "look", "panels", "rows", "channels", "group", "row", "channel", "tap_row", "tap_column", "taps_y", "taps_x", "together",
    "rows_lie_apart", "pitch",
)  # fmt: skip
_COPY: Final = Parameters("source* outer count length pitch ahead to*")
_COPY_TAP: Final = Parameters("source* row channel rows channels to*")
_PACK_LINES: Final = Parameters("source* taps pitch steps* extent*")
PANEL: Final = Parameters("words* u scratch* target* header*")


def panel_words(p: Problem, gradient: bool, form: str) -> tuple[list[Word], int]:
    """What `panel_function` wants to know, and the bytes of scratch that it needs."""
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    out_stride, in_stride, tap_row, tap_column = p.w.strides
    row, channel = (in_stride, out_stride) if gradient else (out_stride, in_stride)
    taps = p.w.shape[2] * p.w.shape[3]
    dense = (p.w.shape[3] == 1 or tap_column == 1) and (p.w.shape[2] == 1 or tap_row == p.w.shape[3]) and in_stride == taps
    together = dense and taps <= _MOST_TAPS
    lines = ceil_div(DEEP * taps, WIDTH)
    pitch = WIDTH * (lines + 1 - lines % 2)  # an odd number of cache lines
    words: list[Word] = [
        p.w.word, look_function() if form == "halves" else 0, ceil_div(rows, ROWS), rows, channels, p.group_outputs * out_stride, row, channel,
        tap_row, tap_column, p.w.shape[2], p.w.shape[3], int(together), int(not gradient), pitch,
    ]  # fmt: skip
    return words, 4 * ROWS * (pitch if together else DEEP)


def pack_tile_weights(p: Problem, gradient: bool, element: Element, packed: int, panel_bytes: int, node: int, form: str) -> Kernel:
    """The kernel that packs the panels, [group][panel], behind their headers."""
    own, scratch = panel_words(p, gradient, form)
    units = p.groups * ceil_div(p.group_inputs if gradient else p.group_outputs, ROWS)
    words: dict[str, Word] = {
        "packed": Address(packed), "scratch": Scratch(scratch), "pack": panel_function(element, form), "units": units, "panel_bytes": panel_bytes,
        "panels_at": units * HEADER, "scratch_bytes": scratch,
    }  # fmt: skip
    count = numel(p.w)
    return describe(
        f"convolution_weights_{element.name}", "convolution:tiles:weights", _pack, words, {"panel": own},
        reads=(p.w.root,), writes=(packed,), units=units, bytes=count * element.itemsize + units * panel_bytes,
        nodes=(node,), min_units_per_thread=maximum(1, 16384 * units // maximum(1, count)),
    )  # fmt: skip


def _pack(b: Builder, w: dict[str, str]) -> None:
    copy = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    with b.for_("%begin", "%end") as u:
        target = b.gep("i8", w["packed"], b.add(w["panels_at"], b.mul(u, w["panel_bytes"])))
        header = b.gep("i8", w["packed"], b.mul(u, HEADER))
        b.invoke(w["pack"], PANEL, w["panel"], u, copy, target, header)


def panel_function(element: Element, form: str) -> Function:
    """`pack(words, u, scratch, target, header)`: panel u of [group][panel], and what its header holds."""
    key = f"convolution:tiles:weights:{element.name}:{form}"
    helpers = [partial(_copy, element), partial(_copy_tap, element), partial(_pack_rows, form), partial(_pack_channels, form)]
    return native(key, partial(_panel, element, form), *helpers)


def _store_bits(b: Builder, element: Element, value: str, to: str) -> None:
    bits = b.op(f"bitcast {_FLOATS} {value} to {_INTS}") if element.memory == "float" else b.op(f"zext {_SHORTS} {value} to {_INTS}")
    b.store(_INTS, bits, to, 64)


def _copy(element: Element, b: Builder) -> str:
    """Text of `copy(source, outer, count, length, pitch, ahead, to)`: `count` of 32 lines `outer` apart, as i32; the rest is zero.

    The elements `ahead` of them are fetched: it is what comes next.
    """
    memory, size = element.memory, element.itemsize
    with b.for_(0, ROWS) as r:
        exists = b.op(f"icmp slt i64 {r}, %count")
        left = b.op(f"select i1 {exists}, i64 %length, i64 0")
        source, to = b.gep(memory, "%source", b.mul(r, "%outer")), b.gep("i32", "%to", b.mul(r, "%pitch"))
        with b.for_(0, "%pitch", WIDTH) as at:
            here = b.gep(memory, source, at)
            value = b.masked_load(memory, WIDTH, here, bit_mask(b, WIDTH, 0, b.sub(left, at)), size)
            b.prefetch(b.gep(memory, here, "%ahead"))
            _store_bits(b, element, value, b.gep("i32", to, at))
    return b.define("copy", _COPY)


def _copy_tap(element: Element, b: Builder) -> str:
    """Text of `copy_tap(source, row, channel, rows, channels, to)`: [32 rows][32 channels] of a tap, as i32; the rest is zero."""
    with b.for_(0, ROWS) as r:
        exists = b.op(f"icmp slt i64 {r}, %rows")
        for first in range(0, DEEP, WIDTH):
            left = b.op(f"select i1 {exists}, i64 {b.sub('%channels', first)}, i64 0")
            read = masked_read(b, element.memory, WIDTH, element.itemsize, GATHER, "0", left, "%channel")
            value = read(b.gep(element.memory, "%source", b.add(b.mul(r, "%row"), b.mul("%channel", first))))
            _store_bits(b, element, value, b.gep("i32", "%to", b.add(b.mul(r, DEEP), first)))
    return b.define("copy_tap", _COPY_TAP)


def _put(b: Builder, form: str, values: Sequence[str], to: str, seen: Sequence[str], scale: str) -> list[str]:
    """Store the parts of 32 channels, 16 in each of two vectors, of an output channel; the extent of all that was seen."""
    shorts = f"<{2 * WIDTH} x i16>"
    extremes = list(seen)
    bits: Sequence[str]
    if form == "halves":
        shorts, bits = f"<{2 * WIDTH} x half>", halves_in_order(b, WIDTH, values[0], values[1], scale)
    elif form == "parts":
        bits = split_in_order(b, WIDTH, *values)
        for value in values:
            extremes = EXTENT.include(b, value, *extremes)
    else:
        lanes = [b.op(f"bitcast {_FLOATS} {value} to {shorts}") for value in values]
        lower = ", ".join(f"i32 {2 * i}" for i in range(2 * WIDTH))
        bits = [b.op(f"shufflevector {shorts} {lanes[0]}, {shorts} {lanes[1]}, <{2 * WIDTH} x i32> <{lower}>")]
    for part, value in enumerate(bits):
        b.store(shorts, value, b.gep("i8", to, part * 2 * TILE_BYTES), 64)
    return extremes


def _pack_rows(form: str, b: Builder) -> str:
    """Text of `pack_rows(source, taps, pitch, steps, extent)`: neighbouring steps; lines of `source` are output channels.

    Element i of a tap is element tap + i * taps of the line: lane (tap + i * taps) % 16 of vector (tap + i * taps) / 16.
    (Gathers of 16 took 35 cycles, these permutations take 9 for 9 taps.)
    """
    order = "<" + ", ".join(f"i32 {i}" for i in range(WIDTH)) + ">"
    distances = b.op(f"mul {_INTS} {order}, {b.splat('i32', WIDTH, b.op('trunc i64 %taps to i32'))}")
    scale = scale_of(b, "%extent") if form == "halves" else ""
    fours = "<" + ", ".join(["i32 4"] * WIDTH) + ">"
    start = extent_in_memory(b, "%extent") if form == "parts" else []
    with b.fold(0, "%taps", 1, [(EXTENT.type, value) for value in start]) as (t, seen):
        step = b.gep("i8", "%steps", b.mul(t, COUNTS[form] * 2 * TILE_BYTES))
        places = b.op(f"add {_INTS} {distances}, {b.splat('i32', WIDTH, b.op(f'trunc i64 {t} to i32'))}")
        vectors = b.op(f"lshr {_INTS} {places}, {fours}")
        with b.fold(0, ROWS, _LINES, [(EXTENT.type, value) for value in seen]) as (r, extremes):
            lines = [b.gep("float", "%source", b.mul(b.add(r, i), "%pitch")) for i in range(_LINES)]
            with b.fold(0, "%taps", 1, [(_FLOATS, "zeroinitializer")] * (2 * _LINES)) as (v, found):
                here = b.op(f"icmp eq {_INTS} {vectors}, {b.splat('i32', WIDTH, b.op(f'trunc i64 {v} to i32'))}")
                following = []
                for i, old in enumerate(found):
                    at = b.mul(b.add(v, b.mul("%taps", i % 2)), WIDTH)
                    lanes = [(_FLOATS, b.load(_FLOATS, b.gep("float", lines[i // 2], at), 64)), (_INTS, places)]
                    moved = b.call(_FLOATS, "llvm.x86.avx512.permvar.sf.512", lanes)
                    following.append(b.op(f"select <{WIDTH} x i1> {here}, {_FLOATS} {moved}, {_FLOATS} {old}"))
                found[:] = following
            tile = b.gep("i8", step, b.mul(b.op(f"lshr i64 {r}, 4"), TILE_BYTES))
            for i in range(_LINES):
                to = b.gep("i8", tile, b.mul(b.op(f"and i64 {b.add(r, i)}, 15"), 64))
                extremes[:] = _put(b, form, found[2 * i : 2 * i + 2], to, extremes, scale)
        seen[:] = extremes
    put_extent(b, "%extent", seen)
    return b.define("pack_rows", _PACK_LINES)


def _pack_channels(form: str, b: Builder) -> str:
    """Text of `pack_channels(source, taps, pitch, steps, extent)`: neighbouring steps; lines of `source` are channels.

    16 x 16 elements are transposed: each vector is then a tap of an output channel.
    """
    step_bytes = COUNTS[form] * 2 * TILE_BYTES
    scale = scale_of(b, "%extent") if form == "halves" else ""

    start = [(EXTENT.type, value) for value in extent_in_memory(b, "%extent")] if form == "parts" else []
    with b.fold(0, b.mul("%taps", ROWS), WIDTH, [("i64", "0"), ("i64", "0"), *start]) as (at, values):
        row, tap, *extremes = values
        halves = []
        for first in range(0, DEEP, WIDTH):
            lines = [b.gep("float", "%source", b.add(b.mul("%pitch", first + i), at)) for i in range(WIDTH)]
            halves.append(transpose_vectors(b, "float", [b.load(_FLOATS, line, 64) for line in lines]))
        for pair in zip(*halves, strict=True):
            to = b.add(b.mul(tap, step_bytes), b.add(b.mul(b.op(f"lshr i64 {row}, 4"), TILE_BYTES), b.mul(b.op(f"and i64 {row}, 15"), 64)))
            extremes = _put(b, form, pair, b.gep("i8", "%steps", to), extremes, scale)
            after = b.add(tap, 1)
            wraps = b.op(f"icmp eq i64 {after}, %taps")
            tap = b.op(f"select i1 {wraps}, i64 0, i64 {after}")
            row = b.add(row, b.op(f"zext i1 {wraps} to i64"))
        values[:] = [row, tap, *extremes]
    put_extent(b, "%extent", values[2:])
    return b.define("pack_channels", _PACK_LINES)


def _panel(element: Element, form: str, name: str, b: Builder) -> str:
    w = load_record(b, "%words", _PANEL, 2)
    memory = element.memory
    b.allocas.append(f"  %extent = alloca [{NOTES} x i8], align 64")
    step_bytes = COUNTS[form] * 2 * TILE_BYTES
    taps = b.mul(w["taps_y"], w["taps_x"])
    rows_lie_apart = b.op(f"icmp ne i64 {w['rows_lie_apart']}, 0")
    together = b.op(f"icmp ne i64 {w['together']}, 0")
    g, panel = b.op(f"udiv i64 %u, {w['panels']}"), b.op(f"urem i64 %u, {w['panels']}")
    r0 = b.mul(panel, ROWS)
    rows = b.min(ROWS, b.sub(w["rows"], r0))
    source = b.gep(memory, w["weights"], b.add(b.mul(g, w["group"]), b.mul(r0, w["row"])))

    def visit(packs: bool) -> None:
        """Copy all blocks of channels, and pack them or, one tap after the other, look at them."""
        with b.for_(0, w["channels"], DEEP) as c:
            channels = b.min(DEEP, b.sub(w["channels"], c))
            from_block = b.gep(memory, source, b.mul(c, w["channel"]))
            to_block = b.gep("i8", "%target", b.mul(b.mul(b.op(f"lshr i64 {c}, 5"), taps), step_bytes))

            def pack(lines: str, count: str, pitch: str, to: str) -> None:
                if packs:
                    b.invoke(f"pack_{lines}", _PACK_LINES, "%scratch", count, pitch, to, "%extent")
                else:
                    look_at("%scratch", "1", "0", b.mul(pitch, ROWS))

            def one_by_one() -> None:
                with b.for_(0, w["taps_y"]) as ty, b.for_(0, w["taps_x"]) as tx:
                    at = b.add(b.mul(ty, w["tap_row"]), b.mul(tx, w["tap_column"]))
                    b.invoke("copy_tap", _COPY_TAP, b.gep(memory, from_block, at), w["row"], w["channel"], rows, channels, "%scratch")
                    pack("rows", "1", str(DEEP), b.gep("i8", to_block, b.mul(b.add(b.mul(ty, w["taps_x"]), tx), step_bytes)))

            if packs:
                with b.if_(together):
                    outer, lines, length = (
                        b.op(f"select i1 {rows_lie_apart}, i64 {first}, i64 {second}")
                        for first, second in ((w["row"], w["channel"]), (rows, channels), (channels, rows))
                    )
                    b.invoke("copy", _COPY, from_block, outer, lines, b.mul(length, taps), w["pitch"], b.mul(w["channel"], DEEP), "%scratch")
                    with b.if_(rows_lie_apart):
                        pack("rows", taps, w["pitch"], to_block)
                    with b.if_(b.op(f"xor i1 {rows_lie_apart}, true")):
                        pack("channels", taps, w["pitch"], to_block)
                with b.if_(b.op(f"xor i1 {together}, true")):
                    one_by_one()
            else:
                one_by_one()

    def look_at(source: str, lines: str, stride: str, length: str) -> None:
        b.invoke(w["look"], LOOK, source, lines, stride, "1", "0", length, stride, "%extent")

    def look() -> None:
        """At all of the panel: its lines, as long as they are dense, or one tap after the other."""
        lines, stride, length = (
            b.op(f"select i1 {rows_lie_apart}, i64 {first}, i64 {second}")
            for first, second in ((rows, w["channels"]), (w["row"], w["channel"]), (w["channels"], rows))
        )
        with b.if_(together):
            look_at(source, lines, stride, b.mul(length, taps))
        with b.if_(b.op(f"xor i1 {together}, true")):
            visit(False)

    known: tuple[str, ...] = ()
    if form == "halves":
        clear_notes(b, "%extent")
        look()
        known = judge(b, "%extent", b.mul(b.mul(rows, w["channels"]), taps), look)
    else:
        clear_extent(b, "%extent")
    visit(True)
    extent = EXTENT.reduce(b, *extent_in_memory(b, "%extent"))
    for at, value in enumerate((*extent, *known)):
        b.store("i32", value, b.gep("i32", "%header", at), 4)
    return b.define(name, PANEL, "")
