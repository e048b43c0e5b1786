"""Convolutions straight from padded planes: forward and input gradient, where there are channels enough for the lanes.

    result[p][o] = sum over k of plane[place(p) + shift(k)] * weights[k][o]          k = (channel, tap row, tap column)

The lanes of a vector are output channels; up to 14 neighbouring pixels of an output row are scalars that the
multiply-adds broadcast from memory. So no patch is ever formed and no vector has an edge (the idea of Georganas et al.
2018, "Anatomy of high-performance deep learning convolutions on SIMD architectures", but with images left in NCHW):

    for each unit: (images, group, block of output rows or columns, range of output channels)
        for each phase (one, or the residues of a strided input gradient)
            copy the block's source, zero-padded, one plane a channel: a stride deals its rows and columns to
            sub-planes by their residue, so that the pixels of a tap always lie next to each other
            (a 1x1 kernel reads its pixels where they lie, fetched while the unit before is computed)
            for each panel of output channels (`columns` lanes), for each block of K
                for each row, each tile of pixels: the micro-kernel, into [pixel][lane] sums
            transpose the sums into the output
        the epilogue, on the unit's channels and pixels

The order of additions into a pixel depends on the block of K only, which depends on sizes only. All sizes are words.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import partial

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_direct_kernel import Facts, body, helpers
from flambeau.compiler.kernels.convolution_patches import Geometry, read_kind
from flambeau.compiler.kernels.convolution_planes import PHASE, Phase, axes, balanced, phase_of, plane_elements, shifts
from flambeau.compiler.kernels.convolution_problem import COMPUTE_DTYPE, Problem, numel, temporary
from flambeau.compiler.kernels.convolution_weights import pack_weights
from flambeau.compiler.kernels.description import Epilogue, describe
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import Element, Tile, element_of
from flambeau.dtypes import BY_NAME
from flambeau.symbols import Sym, maximum, minimum, roughly_over

# Rows of weights used together, whose products one accumulator sums: 128 give sums a little more exact than oneDNN's
# (root mean square error against float64: 0.73 to 0.95 of PyTorch's; 320 rows: 1.4), at the same speed.
_BLOCK_K = 128
# In place every channel is another page: 64 of them stay in a first-level TLB of 96 entries, and 2 lines of each in a
# first-level cache, whatever their distance.
_BLOCK_K_IN_PLACE = 64
_PLANES_BYTES = 768 << 10  # of one unit: with its sums, half of a second-level cache of 2 MiB
_BLOCK_PIXELS = 1024  # of one unit: 128 KiB of float32 sums for a panel of 32 channels
_BLOCK_COLUMNS = 448  # longer rows are cut
_FEW_PIXELS = 256  # of one unit: 18 tiles for each block of the weights
_UNITS = 32  # blocks get smaller until there are as many
_UNITS_PER_THREAD = 4  # ... and channels are split until there are as many; each split copies the planes again


def direct_tile(element: Element, vector_bits: int, registers: int, short_rows: bool = False) -> Tile:
    """14 pixels by 2 vectors of channels (28 accumulators of 32 registers), 6 by 2 of 16 registers, 4 by 2 of fewer.

    `short_rows`: 4 by 4 of 32 registers: rows of 4 pixels have too few sums with 2 vectors.
    """
    width = max(1, vector_bits // (8 * element.compute_bytes))
    if short_rows and registers >= 32:
        return Tile(4, 4, width)
    return Tile(14 if registers >= 32 else 6 if registers >= 16 else 4, 2, width)


def lanes_are_filled(p: Problem, gradient: bool) -> bool:
    """True where output channels fill more than half a vector; fewer are better served as rows of a product."""
    element = element_of(p.dtype)
    host = p.target
    return (p.group_inputs if gradient else p.group_outputs) > direct_tile(element, host.vector_bits, host.registers).width // 2


def make_direct_convolution(
    graph: Graph, p: Problem, gradient: bool, phases: list[Geometry], node_index: int, epilogue: Epilogue | None
) -> list[Kernel]:  # fmt: skip
    """Kernels of `convolution`, or with `gradient` of `convolution_input_gradient`; `phases` lack their blocking."""
    host = p.target
    element = element_of(p.dtype)
    size = element.compute_bytes
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    out_height, out_width = out.shape[2:]
    scale_y, scale_x = p.stride if len(phases) > 1 else (1, 1)
    height, width = ceil_div(out_height, scale_y), ceil_div(out_width, scale_x)  # of the largest phase
    tile = direct_tile(element, host.vector_bits, host.registers)
    if width <= 4 and rows > tile.columns:
        tile = direct_tile(element, host.vector_bits, host.registers, short_rows=True)
    out_x = 1 if out_width == 1 else out.strides[3]
    direct = len(phases) == 1 and out_x == 1 and (out.strides[2] == out_width or out_height == 1)
    first = phases[0]
    facts = Facts(
        element,
        tile,
        host.vector_bits,
        read_kind(first.step_x, first.stride_x),
        direct,
        out_x * scale_x == 1,
        len(phases),
        _reads_in_place(element, phases, source.strides[1], out_height, out_width),
    )

    sides = [axes(g) for g in phases]
    reach_y, reach_x = max(y.reach for y, _ in sides), max(x.reach for _, x in sides)
    # A unit is a block of whole rows, or a piece of one row; the smaller, the more planes it copies twice.
    deal = first.step_y * first.step_x
    places = max(1, _PLANES_BYTES // (channels * deal * size))  # of a sub-plane
    columns = width
    if len(phases) == 1 and width > _BLOCK_COLUMNS // 2:
        fitting = max(4 * tile.rows, min(_BLOCK_COLUMNS, places // (1 + reach_y) - reach_x))
        columns = balanced(width, fitting)
        if facts.in_place:
            columns = round_up(columns, tile.rows)
    block_rows = 1
    if columns == width:
        fitting = minimum(places // (width + reach_x) - reach_y, _BLOCK_PIXELS // width)
        wanted = maximum(ceil_div(8 * tile.rows, width), height * p.batch * p.groups // _UNITS)
        block_rows = balanced(height, maximum(1, minimum(height, fitting, wanted)))
    blocks_y, blocks_x = ceil_div(height, block_rows), ceil_div(width, columns)
    # Several small images share a unit, so that the weights come from afar less often.
    area = block_rows * columns
    images = 1
    if blocks_y * blocks_x == 1:
        fitting = min(places // ((block_rows + reach_y) * (columns + reach_x)), _BLOCK_PIXELS // area, ceil_div(_FEW_PIXELS, area))
        images = balanced(p.batch, maximum(1, minimum(fitting, p.batch * p.groups // 4)))
    blocks = ceil_div(p.batch, images) * p.groups * blocks_y * blocks_x
    panels = ceil_div(rows, tile.columns)
    split_panels = ceil_div(panels, maximum(1, minimum(panels, _UNITS_PER_THREAD * host.workers // blocks)))
    splits = ceil_div(panels, split_panels)
    # Even heights, as equal as can be: 26 pixels are 14 + 12, 24 are 12 + 12.
    # Of sizes that are symbols the height is one for all.
    if columns.__class__ is Sym and roughly_over(columns, tile.rows - 1):
        tile_pixels = tile.rows
    else:
        tile_pixels = columns if columns == tile.rows // 2 else min(tile.rows, round_up(balanced(columns, tile.rows), 2))

    sub_rows = block_rows + reach_y
    block_k = _BLOCK_K_IN_PLACE if facts.in_place else _BLOCK_K
    all_shifts: list[int] = []
    blocked: list[Phase] = []
    taps: list[tuple[int, ...]] = []
    weights_offset = 0
    pitch = columns + reach_x
    plane = first.stride_channel if facts.in_place else plane_elements(deal, sub_rows, pitch)
    for g, (y, x) in zip(phases, sides, strict=True):
        block = balanced(channels, max(1, block_k // max(1, g.taps)))
        blocked.append(phase_of(g, (y.before, x.before), reach_y, sub_rows, pitch, plane, len(all_shifts), weights_offset, block))
        taps.append((g.taps_y, g.taps_x, weights_offset, block, g.first_y, g.skip_y, g.first_x, g.skip_x))
        weights_offset += panels * tile.columns * channels * g.taps
        all_shifts += shifts(g, y, x, sub_rows, pitch)
    packed = temporary(graph, max(1, weights_offset * p.groups), BY_NAME[COMPUTE_DTYPE[element.compute]])
    slack = (tile.rows + 2 * tile.width) * size
    planes_bytes = 0 if facts.in_place else round_up(images * channels * plane * size + slack, 64)
    sums_bytes = round_up((images * area + tile.rows + tile.width) * tile.columns * size, 64)
    table_bytes = round_up(max(q.channel_block * q.taps_y * q.taps_x for q in blocked) * 8, 64)
    scratch = planes_bytes + sums_bytes + table_bytes
    words: dict[str, Word] = {
        "source": source.word, "weights": Address(packed), "out": out.word, "scratch": Scratch(scratch), "batch": p.batch, "images": images,
        "groups": p.groups, "blocks_y": blocks_y, "blocks_x": blocks_x, "splits": splits, "split_rows": split_panels * tile.columns,
        "phases": len(phases), "rows": rows, "channels": channels, "source_batch": source.strides[0], "source_group": channels * source.strides[1],
        "weights_group": weights_offset, "out_batch": out.strides[0], "out_group": rows * out.strides[1], "out_row": out.strides[1],
        "scratch_bytes": scratch, "sums_at": planes_bytes, "table_at": planes_bytes + sums_bytes, "block_rows": block_rows, "block_columns": columns,
        "tile_pixels": tile_pixels, "scale_y": scale_y, "scale_x": scale_x, "out_height": out_height, "out_width": out_width,
    }  # fmt: skip
    first_shift = len(words) + len(blocked) * len(PHASE) + (0 if epilogue is None else len(epilogue.words))
    table = [word for q in blocked for word in astuple(replace(q, shifts_at=first_shift + q.shifts_at))]
    units = blocks * splits
    name = "convolution_input_gradient" if gradient else "convolution"
    return [
        pack_weights(p, gradient, element, tile.columns, taps, packed, weights_offset, node_index),
        describe(
            f"{name}_{element.name}", f"convolution:direct:{facts.key()}", partial(body, facts, epilogue is not None), words, {"table": table},
            all_shifts, helpers(facts), epilogue=epilogue, reads=(source.root, packed), writes=(out.root,), units=units,
            bytes=(numel(p.x) + numel(p.w) + numel(p.y)) * p.dtype.itemsize, operations=p.operations,
            nodes=(node_index,),
            min_units_per_thread=maximum(1, 2_000_000 * units // maximum(1, p.operations)),  # about 20 microseconds
        ),
    ]  # fmt: skip


def _reads_in_place(element: Element, phases: list[Geometry], channel: int, out_height: int, out_width: int) -> bool:
    """True for 1x1 kernels with stride 1, whose pixels are one row (convolution_problem.py) of an even number.

    Tiles of pixels have an even height: an odd row would be read one element beyond its end.
    """
    g = phases[0]
    one = len(phases) == 1 and g.taps == 1 and (g.step_x, g.base_y, g.base_x) == (1, 0, 0)
    row = out_height == 1 and g.source_height == 1 and g.source_width == out_width and g.stride_x == 1
    return one and row and out_width % 2 == 0 and channel >= out_width and not element.converts
