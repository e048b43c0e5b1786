"""Convolutions with few output channels, forward and input gradient: multiply-adds straight from the image, nothing is packed.

    for each unit: (image, group, block of output rows)
        for each phase (one, or the residues of a strided input gradient)
            for each row, each `vectors` vectors of its pixels, each `height` output channels
                for each block of channels, each tap: the products of all the block's channels with the pixels that the tap has
        the epilogue, on all channels of the group by the block's pixels

The lanes of a vector are pixels of an output row; padding is lanes that are not read. A vector is used by all output channels that there are, so that
packing it would cost as much as it saves. The matrix unit leaves to the same function what its parts cannot hold (convolution_tiles.py).

The order of additions into a pixel depends on the block of channels only, which depends on sizes only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters, vector
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Function, Kernel, Word
from flambeau.compiler.kernels.convolution_patches import Geometry, bit_mask, masked_read, read_kind
from flambeau.compiler.kernels.convolution_planes import balanced
from flambeau.compiler.kernels.convolution_problem import Problem, call_epilogue, load_record, numel
from flambeau.compiler.kernels.convolution_tile_pack import SHAPE, WIDTH, lanes_inside
from flambeau.compiler.kernels.description import Epilogue, Writer, describe, native
from flambeau.compiler.kernels.matmul_blocking import ceil_div
from flambeau.compiler.kernels.matmul_element import Element, element_of
from flambeau.compiler.kernels.matmul_micro import call_least
from flambeau.compiler.tile.contract import Operands, contract
from flambeau.symbols import maximum, minimum

_VECTORS: Final = (3, 2, 1)  # of pixels at once
_BLOCK_K: Final = 128  # products that are summed before they are added to others: see convolution_direct.py
_UNIT_PIXELS: Final = 1024
_UNITS: Final = 64  # blocks get smaller until there are as many
_PHASE: Final = (  # of SHAPE what is read here, and where a phase's pixels and weights are
    "channels", "deal_y", "deal_x", "source_height", "source_width", "stride_channel", "stride_y", "stride_x", "taps_y", "taps_x", "base_y", "base_x",
    "tap_y", "tap_x", "kernel_row", "kernel_channel", "kernel_y", "kernel_x", "out_row", "out_y", "out_x", "block_channels", "height", "width", "out_at",
    "kernel_at",
)  # fmt: skip
PIXELS: Final = Parameters("shape* kernel* source* out* y x rows columns channels")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the text depends on. `record`: names of the words at `shape`; `unit_out`: the pixels of an output row lie next to each other."""

    element: Element
    width: int
    heights: tuple[int, ...]
    kind: str
    record: tuple[str, ...]
    unit_out: bool

    def key(self) -> str:
        heights = ",".join(map(str, self.heights))
        return f"{self.element.name}:{self.width}:{heights}:{self.kind}:{'unit' if self.unit_out else 'strided'}"


def heights_of(registers: int) -> tuple[int, ...]:
    """Output channels at once: three vectors of sums each, and of pixels, must stay in registers."""
    return (8, 4, 2) if registers >= 32 else (4, 2)


def exact_function(element: Element, kind: str) -> Function:
    """`exact(shape, kernel, source, out, y, x, rows, columns, channels)` for the matrix unit: a block of one image's pixels."""
    facts = Facts(element, WIDTH, heights_of(32), kind, SHAPE, True)
    *tiles, image = _writers(facts)
    return native(f"convolution:tiles:exact:{facts.key()}", lambda name, b: image(b, name=name, linkage=""), *tiles)


def _writers(facts: Facts) -> list[partial[str]]:
    return [*[partial(_pixels, facts, height, vectors) for height in facts.heights for vectors in _VECTORS], partial(_image, facts)]


def _image(facts: Facts, b: Builder, name: str = "image", linkage: str = "internal") -> str:
    """Text of `name(shape, kernel, source, out, y, x, rows, columns, channels)`: result rows and columns from (y, x) on, `out` is the first one."""
    w = load_record(b, "%shape", facts.record)
    memory = facts.element.memory
    with b.for_(0, "%rows") as y:
        row = b.gep(memory, "%out", b.mul(y, w["out_y"]))
        with b.for_(0, "%columns", _VECTORS[0] * facts.width) as x, b.for_(0, "%channels", facts.heights[0]) as o:
            columns, channels = b.sub("%columns", x), b.sub("%channels", o)
            to = b.gep(memory, row, b.add(x if facts.unit_out else b.mul(x, w["out_x"]), b.mul(o, w["out_row"])))
            given = {
                "%kernel": b.gep(memory, "%kernel", b.mul(o, w["kernel_row"])), "%out": to, "%y": b.add("%y", y), "%x": b.add("%x", x), "%rows": "1",
                "%columns": columns, "%channels": channels,
            }  # fmt: skip
            arguments = [(type_, given.get(name, name)) for type_, name in PIXELS.arguments]
            call_least(b, "pixels", arguments, (channels, 1, facts.heights), (columns, facts.width, _VECTORS))
    return b.define(name, PIXELS, linkage)


def _pixels(facts: Facts, height: int, vectors: int, b: Builder) -> str:
    """Text of `pixels_HxV(...)`, parameters as of `image`: some vectors of a row's pixels, and `channels` of `height` output channels."""
    w = load_record(b, "%shape", facts.record)
    element, width, kind = facts.element, facts.width, facts.kind
    memory, size, type_ = element.memory, element.memory_bytes, vector(element.compute, width)
    distance = b.mul(w["deal_x"], w["stride_x"])
    zeros = [(type_, element.zero(width))] * (height * vectors)
    last = b.sub("%channels", 1)
    kernels = [b.gep(memory, "%kernel", b.mul(b.min(i, last), w["kernel_row"])) for i in range(height)]
    y_first = b.add(b.mul("%y", w["deal_y"]), w["base_y"])
    x_first = b.add(b.mul("%x", w["deal_x"]), w["base_x"])
    with b.fold(0, w["channels"], w["block_channels"], zeros) as (c0, totals):
        c1 = b.min(b.add(c0, w["block_channels"]), w["channels"])
        with b.fold(0, w["taps_y"], 1, zeros) as (ty, sums):
            at_y = b.add(y_first, b.mul(ty, w["tap_y"]))
            inside = b.op(f"icmp ult i64 {at_y}, {w['source_height']}")
            wide = b.op(f"select i1 {inside}, i64 %columns, i64 0")
            with b.fold(0, w["taps_x"], 1, [(type_, value) for value in sums]) as (tx, of_row):
                at_x = b.add(x_first, b.mul(tx, w["tap_x"]))
                low, high = lanes_inside(b, kind, at_x, w["deal_x"], w["source_width"])
                high = b.min(high, wide)
                reads = [masked_read(b, memory, width, size, kind, b.sub(low, v * width), b.sub(high, v * width), distance) for v in range(vectors)]
                line = b.gep(memory, "%source", b.add(b.mul(at_y, w["stride_y"]), b.mul(at_x, w["stride_x"])))
                starts = [b.gep(memory, line, b.mul(distance, v * width)) for v in range(vectors)]
                place = b.add(b.mul(ty, w["kernel_y"]), b.mul(tx, w["kernel_x"]))

                def channel(c: str) -> Iterator[Operands[str, str]]:
                    along = b.mul(c, w["stride_channel"])
                    right = [element.widen(b, width, read(b.gep(memory, start, along))) for read, start in zip(reads, starts, strict=True)]
                    at = b.add(b.mul(c, w["kernel_channel"]), place)
                    weights = (element.widen(b, 1, b.load(memory, b.gep(memory, kernel, at), size)) for kernel in kernels)
                    yield (b.splat(element.compute, width, weight) for weight in weights), right

                of_row[:] = contract(b, c1, [(type_, value) for value in of_row], c0, add=partial(element.multiply_add, b, width), read=channel)
            sums[:] = of_row
        totals[:] = [element.add(b, width, total, value) for total, value in zip(totals, sums, strict=True)]
    if not facts.unit_out:
        b.allocas.append(f"  %lanes = alloca [{width} x {memory}], align 64")
    for i in range(height):
        here = b.gep(memory, "%out", b.mul(i, w["out_row"]))
        left = b.op(f"select i1 {b.op(f'icmp slt i64 {i}, %channels')}, i64 %columns, i64 0")
        for v, total in enumerate(totals[i * vectors : (i + 1) * vectors]):
            narrow, lanes = element.narrow(b, width, total), b.sub(left, v * width)
            if facts.unit_out and width > 1:
                b.masked_store(memory, width, narrow, b.gep(memory, here, v * width), bit_mask(b, width, 0, lanes), size)
                continue
            b.store(vector(memory, width), narrow, "%lanes", size)
            with b.for_(0, b.min(lanes, width)) as q:
                at = b.gep(memory, here, b.mul(b.add(q, v * width), w["out_x"]))
                b.store(memory, b.load(memory, b.gep(memory, "%lanes", q), size), at, size)
    return b.define(f"pixels_{height}x{vectors}", PIXELS)


def make_few_convolution(
    graph: Graph, p: Problem, gradient: bool, phases: Sequence[Geometry], node_index: int, epilogue: Epilogue | None
) -> list[Kernel]:  # fmt: skip
    """The kernel of `convolution`, or with `gradient` of `convolution_input_gradient`."""
    host, element = graph.target, element_of(p.dtype)
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    out_stride, in_stride, kernel_y, kernel_x = p.w.strides
    row, channel = (in_stride, out_stride) if gradient else (out_stride, in_stride)
    out_height, out_width = out.shape[2:]
    scale_y, scale_x = p.stride if len(phases) > 1 else (1, 1)
    out_x = scale_x if out_width == 1 else phases[0].out_x
    width = max(1, host.vector_bits // (8 * element.compute_bytes))
    facts = Facts(element, width, heights_of(host.registers), read_kind(phases[0].step_x, phases[0].stride_x), _PHASE, out_x == 1 and width > 1)
    height = ceil_div(out_height, scale_y)  # of the largest phase
    block = balanced(height, maximum(1, minimum(height, _UNIT_PIXELS // maximum(1, out_width // scale_x), height * p.batch * p.groups // _UNITS)))
    blocks = ceil_div(height, block)
    table: list[Word] = []
    for g in phases:
        deep = channels if element.converts else balanced(channels, max(1, _BLOCK_K // max(1, g.taps)))  # what is rounded on the way out takes all of K
        table += [
            channels, g.step_y, g.step_x, g.source_height, g.source_width, g.stride_channel, g.stride_y, g.stride_x, g.taps_y, g.taps_x, g.base_y, g.base_x,
            g.tap_y, g.tap_x, row, channel, g.skip_y * kernel_y, g.skip_x * kernel_x, out.strides[1], g.out_y, g.out_x, deep,
            g.pixels // maximum(1, g.width), g.width, g.out_offset, g.first_y * kernel_y + g.first_x * kernel_x,
        ]  # fmt: skip
    words: dict[str, Word] = {
        "source": source.word, "kernel": p.w.word, "out": out.word, "groups": p.groups, "blocks": blocks, "block": block, "phases": len(phases),
        "rows": rows, "source_batch": source.strides[0], "source_group": channels * source.strides[1], "kernel_group": p.group_outputs * out_stride,
        "out_batch": out.strides[0], "out_group": rows * out.strides[1], "block_pixels": block * scale_y * out_width, "pixels": out_height * out_width,
    }  # fmt: skip
    units = p.batch * p.groups * blocks
    helpers: list[Writer] = [*_writers(facts)]
    return [
        describe(
            f"{'convolution_input_gradient' if gradient else 'convolution'}_{element.name}", f"convolution:few:{facts.key()}:{host.vector_bits}:{len(phases)}",
            partial(_body, facts, epilogue is not None), words, {"table": table}, helpers=helpers, epilogue=epilogue,
            reads=tuple(dict.fromkeys((source.root, p.w.root))), writes=(out.root,), units=units,
            bytes=sum(numel(o) for o in (p.x, p.w, p.y)) * p.dtype.itemsize, operations=p.operations, nodes=(node_index,),
            min_units_per_thread=maximum(1, 2_000_000 * units // maximum(1, p.operations)),  # about 20 microseconds
        )
    ]  # fmt: skip


def _body(facts: Facts, has_epilogue: bool, b: Builder, w: dict[str, str]) -> None:
    memory = facts.element.memory
    with b.for_("%begin", "%end") as u:
        rest, block = b.op(f"udiv i64 {u}, {w['blocks']}"), b.op(f"urem i64 {u}, {w['blocks']}")
        n, g = b.op(f"udiv i64 {rest}, {w['groups']}"), b.op(f"urem i64 {rest}, {w['groups']}")
        source, out = (b.gep(memory, w[o], b.add(b.mul(n, w[f"{o}_batch"]), b.mul(g, w[f"{o}_group"]))) for o in ("source", "out"))
        kernel = b.gep(memory, w["kernel"], b.mul(g, w["kernel_group"]))
        y = b.mul(block, w["block"])
        with b.for_(0, w["phases"]) as f:
            shape = b.gep("i64", w["table"], b.mul(f, len(_PHASE)))
            q = load_record(b, shape, _PHASE)
            weights, to = b.gep(memory, kernel, q["kernel_at"]), b.gep(memory, out, b.add(q["out_at"], b.mul(y, q["out_y"])))
            b.invoke("image", PIXELS, shape, weights, source, to, y, "0", b.min(w["block"], b.sub(q["height"], y)), q["width"], w["rows"])
        if has_epilogue:
            row, first = b.mul(g, w["rows"]), b.mul(block, w["block_pixels"])
            call_epilogue(b, n, "1", (row, b.add(row, w["rows"])), (first, b.min(b.add(first, w["block_pixels"]), w["pixels"])))
