"""Convolutions as matrix products with patches: forward and input gradient (weights in memory once, patches never).

    pack the weights: panels of `rows` output channels by K        (one small kernel, into a temporary)
    for each unit: (image, group, block of output pixels)
        for each phase (one, or the residues of a strided input gradient)
            for each block of channels                             K stays in the first-level cache
                pack the patches of the block's pixels             this thread's scratch
                for each panel of pixels, each panel of channels   the micro-kernel of the matrix product
        the epilogue, on all channels of the group by the block's pixels

The order of additions into a pixel depends on the channel block only, which depends on sizes only. All sizes are words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_patches import (
    WORDS,
    Geometry,
    input_gradient_phases,
    load_word,
    pack_patches,
    read_kind,
    word_of,
)
from flambeau.compiler.kernels.convolution_planes import balanced
from flambeau.compiler.kernels.convolution_problem import COMPUTE_DTYPE, Problem, numel, temporary
from flambeau.compiler.kernels.convolution_weights import pack_weights
from flambeau.compiler.kernels.description import Epilogue, Writer, describe
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import Element, Tile, element_of
from flambeau.compiler.kernels.matmul_micro import micro_kernel, micro_name, store_part
from flambeau.compiler.kernels.matmul_pack import tile_dispatch
from flambeau.dtypes import BY_NAME
from flambeau.symbols import maximum

# Rows of P that a panel of pixels has, and one accumulator sums: more are less exact than PyTorch's sums
# (see convolution_direct.py), and not faster.
_PANEL_K = 128
_PACKED_BLOCK_BYTES = 512 << 10  # patches of one unit: a quarter of a second-level cache of 2 MiB


def convolution_tile(element: Element, vector_bits: int, registers: int) -> Tile:
    """8 channels by 3 vectors of pixels (24 accumulators of 32 registers), 4 by 3 of 16 registers.

    Channel counts are mostly multiples of 8,
    and a narrow tile for the last pixels of an image still has 8 accumulators,
    just enough to hide a latency of 4 cycles at two multiply-adds a cycle.
    """
    return Tile(8 if registers >= 32 else 4, 3, max(1, vector_bits // (8 * element.compute_bytes)))


@dataclass(frozen=True, slots=True)
class Facts:
    """What the text depends on. `direct`: tiles are stored to the output as they come; else all phases first."""

    element: Element
    tile: Tile
    vector_bits: int
    kind: str
    direct: bool
    phases: int

    def key(self) -> str:
        return f"{self.element.name}:{self.tile.key}:{self.vector_bits}:{self.kind}:{'direct' if self.direct else 'scattered'}:{self.phases}"


def phases(p: Problem, gradient: bool) -> list[Geometry]:
    """The phases of the problem without their blocking. Source: x, or y's gradient."""
    (sy, sx), (py, px), (dy, dx) = p.stride, p.padding, p.dilation
    kernel = p.w.shape[2:]
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    _, _, height, width = source.shape
    _, channel, row, column = source.strides
    if width == 1:
        column = 1  # a dim of one element may have any stride: take the one that reads fastest
    _, _, out_height, out_width = out.shape
    _, _, out_y, out_x = out.strides
    if not gradient:
        return [
            Geometry(
                kernel[0], kernel[1], sy, sx, -py, -px, dy, dx, out_width, height, width, channel, row, column,
                pixels=out_height * out_width, out_y=out_y, out_x=out_x,
            )
        ]  # fmt: skip
    phases = []
    for ry, ay in enumerate(input_gradient_phases(out_height, kernel[0], sy, py, dy)):
        for rx, ax in enumerate(input_gradient_phases(out_width, kernel[1], sx, px, dx)):
            phases.append(
                Geometry(
                    ay.taps, ax.taps, 1, 1, ay.base, ax.base, ay.tap, ax.tap, ax.pixels, height, width, channel, row,
                    column,
                    pixels=ay.pixels * ax.pixels, out_offset=ry * out_y + rx * out_x, out_y=sy * out_y,
                    out_x=sx * out_x,
                    first_y=ay.first, skip_y=ay.skip, first_x=ax.first, skip_x=ax.skip,
                )
            )  # fmt: skip
    return phases


def make_gemm_convolution(
    graph: Graph, p: Problem, gradient: bool, node_index: int, epilogue: Epilogue | None
) -> list[Kernel]:  # fmt: skip
    """Kernels of `convolution`, or with `gradient` of `convolution_input_gradient`."""
    host = graph.target
    element = element_of(p.dtype)
    tile = convolution_tile(element, host.vector_bits, host.registers)
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    bare = phases(p, gradient)
    out_height, out_width = out.shape[2:]
    direct = len(bare) == 1 and (out.strides[3] == 1 or out_width == 1) and (
        out.strides[2] == out_width or out_height == 1
    )  # fmt: skip
    facts = Facts(element, tile, host.vector_bits, read_kind(bare[0].step_x, bare[0].stride_x), direct, len(bare))

    # Blocks of K and of pixels.
    # Elements that are rounded on the way out take the whole K at once.
    most = [channels if element.converts else max(1, _PANEL_K // max(1, g.taps)) for g in bare]
    blocked = [replace(g, channel_block=balanced(channels, limit)) for g, limit in zip(bare, most, strict=True)]
    deepest = max(1, max(g.channel_block * g.taps for g in blocked))
    panel_bytes = deepest * tile.columns * element.compute_bytes
    deep_panels = max(1, min(8, _PACKED_BLOCK_BYTES // panel_bytes))
    if len(blocked) == 1:
        panels = ceil_div(blocked[0].pixels, tile.columns)
        block = balanced(panels, max(1, min(deep_panels, panels * p.batch * p.groups // 64))) * tile.columns
        blocks = ceil_div(blocked[0].pixels, block)
        epilogue_block = block
        blocked = [replace(blocked[0], block=block)]
        widest = block
    else:
        # Rows of phases: all phases of some rows make whole rows of the output.
        tall, wide = ceil_div(out_height, p.stride[0]), ceil_div(out_width, p.stride[1])
        take = balanced(tall, max(1, min(deep_panels * tile.columns // wide, tall * p.batch * p.groups // 64)))
        blocks = ceil_div(tall, take)
        epilogue_block = take * p.stride[0] * out_width
        blocked = [replace(g, block=take * g.width) for g in blocked]
        widest = round_up(take * wide, tile.columns)

    row_panels = ceil_div(rows, tile.rows)
    offset = 0
    for index, g in enumerate(blocked):
        blocked[index] = replace(g, weights_offset=offset)
        offset += row_panels * tile.rows * channels * g.taps
    weights_group = offset
    packed = temporary(graph, max(1, weights_group * p.groups), BY_NAME[COMPUTE_DTYPE[element.compute]])
    slack = 2 * tile.width * element.compute_bytes
    patches = round_up(deepest * round_up(widest, tile.columns) * element.compute_bytes + slack, 64)
    scratch = patches + (0 if direct else round_up(len(blocked) * rows * widest * element.memory_bytes, 64))

    words: dict[str, Word] = {
        "source": source.word, "weights": Address(packed), "out": out.word, "scratch": Scratch(scratch), "groups": p.groups, "blocks": blocks,
        "phases": len(blocked), "rows": rows, "channels": channels, "source_batch": source.strides[0], "source_group": channels * source.strides[1],
        "weights_group": weights_group, "out_batch": out.strides[0], "out_group": rows * out.strides[1], "out_row": out.strides[1],
        "scratch_bytes": scratch, "tile_offset": patches, "tile_row": widest, "epilogue_block": epilogue_block,
        "epilogue_columns": out_height * out_width,
    }  # fmt: skip
    name = "convolution_input_gradient" if gradient else "convolution"
    itemsize = p.dtype.itemsize
    elements = sum(numel(o) for o in (p.x, p.w, p.y))
    units = p.batch * p.groups * blocks
    return [
        pack_weights(p, gradient, element, tile.rows, blocked, packed, weights_group, node_index),
        describe(
            f"{name}_{element.name}", f"convolution:gemm:{facts.key()}", partial(_body, facts, epilogue is not None), words,
            {"geometries": [word for g in blocked for word in g.words()]}, helpers=_helpers(facts), epilogue=epilogue, reads=(source.root, packed),
            writes=(out.root,), units=units, bytes=elements * itemsize,
            operations=p.operations, nodes=(node_index,),
            min_units_per_thread=maximum(1, 2_000_000 * units // maximum(1, p.operations)),  # about 20 microseconds
        ),
    ]  # fmt: skip


def _helpers(facts: Facts) -> list[Writer]:
    element, tile = facts.element, facts.tile
    widths = tuple(range(tile.vectors, 0, -1))
    return [
        *[partial(_micro, element, tile, height, vectors) for height in tile.heights for vectors in widths],
        lambda b: tile_dispatch(b, element, tile, tile.heights, widths, micro_name),
        lambda b: store_part(b, element, tile, "column"),
        lambda b: pack_patches(b, element, tile.width, tile.columns, facts.kind),
    ]


def _micro(element: Element, tile: Tile, height: int, vectors: int, b: Builder) -> str:
    return micro_kernel(b, element, tile, height, vectors, packed=True, name=micro_name(height, vectors))


def _body(facts: Facts, has_epilogue: bool, b: Builder, w: dict[str, str]) -> None:
    element, tile = facts.element, facts.tile
    memory, compute = element.memory, element.compute
    geometries = w["geometries"]
    patches = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    tiles = b.gep("i8", patches, w["tile_offset"])
    phase_tiles = b.mul(w["rows"], w["tile_row"])
    with b.for_("%begin", "%end") as u:
        image, block = b.op(f"udiv i64 {u}, {w['blocks']}"), b.op(f"urem i64 {u}, {w['blocks']}")
        n, g = b.op(f"udiv i64 {image}, {w['groups']}"), b.op(f"urem i64 {image}, {w['groups']}")
        source = b.gep(memory, w["source"], b.add(b.mul(n, w["source_batch"]), b.mul(g, w["source_group"])))
        out = b.gep(memory, w["out"], b.add(b.mul(n, w["out_batch"]), b.mul(g, w["out_group"])))
        weights = b.gep(compute, w["weights"], b.mul(g, w["weights_group"]))
        with b.for_(0, w["phases"]) as f:
            geometry = b.gep("i64", geometries, b.mul(f, WORDS))
            field = {
                name: load_word(b, geometry, word_of(name))
                for name in ("taps_y", "taps_x", "pixels", "block", "stride_channel", "channel_block", "weights_offset")
            }
            first = b.mul(block, field["block"])
            after = b.min(b.add(first, field["block"]), field["pixels"])
            taps = b.mul(field["taps_y"], field["taps_x"])
            # A phase without taps has one pass over no channels, which stores zeros.
            any_taps = b.op(f"icmp sgt i64 {taps}, 0")
            channels = b.op(f"select i1 {any_taps}, i64 {w['channels']}, i64 0")
            panels_k = b.mul(w["channels"], taps)
            weights_at = b.gep(compute, weights, field["weights_offset"])
            if facts.direct:
                target, target_row = b.gep(memory, out, first), w["out_row"]
            else:
                target, target_row = b.gep(memory, tiles, b.mul(f, phase_tiles)), w["tile_row"]
            with b.for_(0, b.max(channels, 1), field["channel_block"]) as c:
                count = b.min(field["channel_block"], b.sub(channels, c))
                k = b.mul(count, taps)
                from_ = b.gep(memory, source, b.mul(c, field["stride_channel"]))
                with b.for_(first, after, tile.columns) as p:
                    columns = b.min(tile.columns, b.sub(after, p))
                    panel = b.gep(compute, patches, b.mul(b.sub(p, first), k))
                    b.call("void", "pack_patches", [
                        ("ptr", geometry), ("ptr", from_), ("i64", p), ("i64", columns), ("i64", count), ("ptr", panel),
                    ], declare=False)  # fmt: skip
                add = b.op(f"icmp sgt i64 {c}, 0")
                weights_c = b.gep(compute, weights_at, b.mul(b.mul(c, taps), tile.rows))
                with b.for_(first, after, tile.columns) as p:
                    columns = b.min(tile.columns, b.sub(after, p))
                    column = b.sub(p, first)
                    panel = b.gep(compute, patches, b.mul(column, k))
                    to = b.gep(memory, target, column)
                    with b.for_(0, w["rows"], tile.rows) as r:
                        b.call("void", "tile", [
                            ("i64", k), ("ptr", b.gep(compute, weights_c, b.mul(r, panels_k))), ("i64", "1"),
                            ("i64", str(tile.rows)), ("ptr", panel), ("i64", str(tile.columns)),
                            ("ptr", b.gep(memory, to, b.mul(r, target_row))), ("i64", target_row), ("i64", "1"),
                            ("i1", add),
                            ("i64", b.min(tile.rows, b.sub(w["rows"], r))), ("i64", columns),
                        ], declare=False)  # fmt: skip
        if not facts.direct:
            _scatter(b, facts, w, geometries, tiles, phase_tiles, block, out)
        if has_epilogue:
            column = b.mul(block, w["epilogue_block"])
            row = b.mul(g, w["rows"])
            b.call("void", "epilogue", [
                ("ptr", "%args"), ("i64", n), ("i64", row), ("i64", b.add(row, w["rows"])), ("i64", column),
                ("i64", b.min(b.add(column, w["epilogue_block"]), w["epilogue_columns"])),
            ], declare=False)  # fmt: skip


def _scatter(
    b: Builder, facts: Facts, w: dict[str, str], geometries: str, tiles: str, phase_tiles: str, block: str, out: str
) -> None:  # fmt: skip
    """Bring each phase's tile to its pixels of the output. A block that is no whole row starts inside one."""
    memory, size = facts.element.memory, facts.element.memory_bytes
    with b.for_(0, w["phases"]) as f:
        geometry = b.gep("i64", geometries, b.mul(f, WORDS))
        field = {name: load_word(b, geometry, word_of(name)) for name in ("pixels", "block", "width", "out_offset", "out_y", "out_x")}
        first = b.mul(block, field["block"])
        after = b.min(b.add(first, field["block"]), field["pixels"])
        origin = b.gep(memory, out, field["out_offset"])
        tile = b.gep(memory, tiles, b.mul(f, phase_tiles))
        with b.if_(b.op(f"icmp slt i64 {first}, {after}")):
            y0 = b.sdiv(first, field["width"])
            y1 = b.sdiv(b.add(after, b.sub(field["width"], 1)), field["width"])
            with b.for_(0, w["rows"]) as r:
                from_row = b.gep(memory, tile, b.mul(r, w["tile_row"]))
                to_row = b.gep(memory, origin, b.mul(r, w["out_row"]))
                with b.for_(y0, y1) as y:
                    start = b.mul(y, field["width"])
                    low, high = b.max(first, start), b.min(after, b.add(start, field["width"]))
                    to = b.gep(memory, to_row, b.mul(y, field["out_y"]))
                    with b.for_(low, high) as q:
                        value = b.load(memory, b.gep(memory, from_row, b.sub(q, first)), size)
                        b.store(memory, value, b.gep(memory, to, b.mul(b.sub(q, start), field["out_x"])), size)
