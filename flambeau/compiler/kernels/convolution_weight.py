"""Convolutions: the weight's gradient, from padded planes of x and the transposed gradient of the output.

    dw^T[k][o] = sum over images and pixels of plane[place(p) + shift(k)] * g^T[p][o]     k = (channel, tap row, column)

    for each unit: (partial sum, group, range of channels)
        for each block of an image's pixels (or of several small images) in the partial sum
            copy the block of x, zero-padded, one plane a channel (convolution_planes.py)
            for each chunk of the block (whole rows, or a piece of one, or images; about `CHUNK` pixels)
                transpose the chunk of g: panels [p][output channels], of which one stays in the first-level cache
                for each panel of output channels, each tile of k               the micro-kernel,
                adding to the partial sum
    then add the partial sums in their order, transpose, and store              (a second kernel)

The lanes of a vector are output channels; a tile is `rows` taps, whose pixels the multiply-adds broadcast from memory.
Partial sums, blocks and chunks depend on sizes only,
hence so does the order of all additions. Sums over a chunk are added
to sums of chunks: the error grows with sqrt(pixels / CHUNK) and not with the number of pixels.
"""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import partial

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.graph import Graph, contiguous_strides
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_patches import bit_mask, phases, read_kind
from flambeau.compiler.kernels.convolution_planes import PHASE, axes, balanced, phase_of, plane_elements, shifts
from flambeau.compiler.kernels.convolution_problem import COMPUTE_DTYPE, Problem, numel, strides_of, temporary
from flambeau.compiler.kernels.convolution_weight_planes import plane_weight_gradient, weight_planes_apply
from flambeau.compiler.kernels.convolution_weight_products import CHUNK, Facts, body, helpers
from flambeau.compiler.kernels.convolution_weight_tiles import tile_weight_gradient, weight_tiles_apply
from flambeau.compiler.kernels.description import Epilogue, describe
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_dots import DOTS
from flambeau.compiler.kernels.matmul_element import Element, Tile, element_of
from flambeau.dtypes import BY_NAME
from flambeau.symbols import maximum, minimum

_IMAGES_PIXELS = 128  # of several small images: the fewer the pixels, the more often the sums come and go
_PLANES_BYTES = 768 << 10
_PARTIALS = 16  # at most: enough for the threads of one socket, and cheap to add
_SUM_VECTORS = 4  # of rows k that are summed at a time: their results are neighbours
_UNITS_PER_THREAD = 4  # each unit transposes g again: 4 instead of 16 took 24 % off the time of 256 channels, 8x8


def weight_tile(element: Element, vector_bits: int, registers: int) -> Tile:
    """6 taps by 4 vectors of output channels (24 accumulators of 32 registers), 6 by 2 of 16 registers.

    Each tap has a pointer of its own: more than 6 would not stay in 16 integer registers.
    """
    return Tile(6, 4 if registers >= 32 else 2, max(1, vector_bits // (8 * element.compute_bytes)))


def make_weight_gradient(graph: Graph, p: Problem, node_index: int, epilogue: Epilogue | None) -> list[Kernel]:
    """Kernels of `convolution_weight_gradient`: the partial sums, then their sum (which has no epilogue)."""
    if epilogue is not None:
        raise ValueError("convolution_weight_gradient: no epilogue can be applied, its result is not made in rectangles")
    host = graph.target
    element = element_of(p.dtype)
    sums_dtype = BY_NAME[COMPUTE_DTYPE[element.compute]]
    sums = element_of(sums_dtype)
    size = sums.memory_bytes
    tile = weight_tile(sums, host.vector_bits, host.registers)
    sy, sx = p.stride
    kernel_y, kernel_x = p.w.shape[2:]
    taps, channels, outputs = kernel_y * kernel_x, p.group_inputs, p.group_outputs
    k = channels * taps
    _, _, out_height, out_width = p.y.shape
    pixels = out_height * out_width
    g_column = 1 if out_width == 1 else p.y.strides[3]
    x_geometry = phases(p, False)[0]
    rowless = out_height == 1 or p.y.strides[2] == out_width * g_column
    dot = DOTS[element.name] if element.name == "bfloat16" and element.name in host.dots - host.matrix_dtypes else None
    flat = rowless and g_column == 1 and (dot is not None or not element.converts)
    facts = Facts(element, sums, tile, host.vector_bits, read_kind(1, g_column), read_kind(sx, x_geometry.stride_x), flat, dot)
    held_bytes = facts.held.compute_bytes
    padded = round_up(outputs, tile.width)
    bytes_each = p.groups * k * padded * size
    by_images = weight_tiles_apply(p)
    if by_images or weight_planes_apply(p):
        temporary_ids: list[int] = []

        def make_partials(count: int) -> int:
            temporary_ids.append(temporary(graph, count * bytes_each // size, sums_dtype))
            return temporary_ids[0]

        kernels, partials = (tile_weight_gradient if by_images else plane_weight_gradient)(graph, p, node_index, make_partials)
        return [*kernels, _sum_kernel(p, facts, temporary_ids[0], partials, node_index)]

    # Blocks of pixels whose planes of all channels fit; pieces of rows only where a row alone is too long.
    side_y, side_x = axes(x_geometry)
    deal = sy * sx
    places = max(1, _PLANES_BYTES // (channels * deal * held_bytes))
    block_columns, block_rows = out_width, 1
    if out_width > CHUNK:
        block_columns = balanced(out_width, max(CHUNK, places // (1 + side_y.reach) - side_x.reach))
    if block_columns == out_width:
        block_rows = balanced(out_height, maximum(1, minimum(out_height, places // (out_width + side_x.reach) - side_y.reach)))
    blocks_y, blocks_x = ceil_div(out_height, block_rows), ceil_div(out_width, block_columns)
    chunk_columns = balanced(block_columns, CHUNK)
    chunk_rows = balanced(block_rows, maximum(1, CHUNK // block_columns))
    images = 1
    if chunk_columns * chunk_rows == pixels:
        fitting = places // ((out_height + side_y.reach) * (out_width + side_x.reach))
        images = max(1, min(fitting, _IMAGES_PIXELS // pixels, p.batch)) if pixels else 1
    blocks = ceil_div(p.batch, images) * blocks_y * blocks_x

    partials = maximum(1, minimum(blocks, p.batch * pixels // 2048, _PARTIALS, (64 << 20) // bytes_each)) if blocks else 0
    splits = maximum(1, minimum(channels, k // 64, _UNITS_PER_THREAD * host.workers // maximum(1, partials * p.groups)))
    split_channels = ceil_div(channels, splits)
    splits = ceil_div(channels, split_channels)
    sub_rows, pitch = block_rows + side_y.reach, block_columns + side_x.reach
    phase = phase_of(
        x_geometry, (side_y.before, side_x.before), side_y.reach, sub_rows, pitch, plane_elements(deal, sub_rows, pitch), channel_block=split_channels
    )
    longest = round_up(maximum(CHUNK, chunk_rows * chunk_columns), tile.width) + (images - 1) * pixels
    copied_at = round_up((images * split_channels * phase.plane + 2 * tile.width) * held_bytes, 64)
    transposed_at = copied_at + (0 if flat else outputs * CHUNK * held_bytes)
    transposed_at = round_up(transposed_at, 64)
    table_at = transposed_at + round_up(outputs, tile.columns) * longest * size
    scratch = table_at + round_up((split_channels * taps + tile.rows) * 8, 64)
    temporary_id = temporary(graph, maximum(1, partials * bytes_each // size), sums_dtype)
    words: dict[str, Word] = {
        "g": p.y.word, "x": p.x.word, "partial": Address(temporary_id), "scratch": Scratch(scratch), "groups": p.groups, "splits": splits,
        "partials": partials, "blocks": blocks, "blocks_y": blocks_y, "blocks_x": blocks_x, "block_rows": block_rows, "block_columns": block_columns,
        "chunk_rows": chunk_rows, "chunk_columns": chunk_columns, "batch": p.batch, "images": images, "outputs": outputs, "channels": channels,
        "split_channels": split_channels, "padded": padded, "g_batch": p.y.strides[0], "g_channel": p.y.strides[1], "x_batch": p.x.strides[0],
        "x_channel": p.x.strides[1], "scratch_bytes": scratch, "copied_at": copied_at, "transposed_at": transposed_at, "table_at": table_at,
        "g_width": pixels if rowless else out_width, "g_y": p.y.strides[2], "g_x": g_column,
    }  # fmt: skip
    phase = replace(phase, shifts_at=len(words) + len(PHASE))
    tables = {"phase": astuple(phase), "shifts": shifts(x_geometry, side_y, side_x, sub_rows, pitch)}
    key = f"convolution:weight_gradient:{facts.key()}"
    units = partials * p.groups * splits
    itemsize = p.dtype.itemsize
    products = describe(
        f"convolution_weight_gradient_{element.name}", key, partial(body, facts), words, tables, helpers=helpers(facts),
        reads=tuple(dict.fromkeys((p.y.root, p.x.root))), writes=(temporary_id,), units=units,
        bytes=(numel(p.x) + numel(p.y)) * itemsize + partials * bytes_each, operations=p.operations,
        nodes=(node_index,),
        min_units_per_thread=maximum(1, 2_000_000 * units // maximum(1, p.operations)),
    )  # fmt: skip
    combine = _sum_kernel(p, facts, temporary_id, partials, node_index)
    return [products, combine] if units else [combine]


def _sum_kernel(p: Problem, facts: Facts, temporary_id: int, partials: int, node_index: int) -> Kernel:
    """The kernel that adds the partial sums, in their order."""
    element, tile = facts.element, facts.tile
    taps = p.w.shape[2] * p.w.shape[3]
    k, outputs = p.group_inputs * taps, p.group_outputs
    padded = round_up(outputs, tile.width)
    dense = p.w.strides[1:] == contiguous_strides(p.w.shape)[1:] and tile.width > 1
    sum_blocks = ceil_div(k, _SUM_VECTORS * tile.width)
    size = facts.sums.memory_bytes
    lines = ceil_div(padded * size, 64)
    pitch = 64 * (lines + 1 - lines % 2)  # an odd number of cache lines
    scratch = _SUM_VECTORS * tile.width * pitch
    words: dict[str, Word] = {
        "partial": Address(temporary_id), "out": p.w.word, "partials": partials, "groups": p.groups, "k": k, "outputs": outputs, "padded": padded,
        "blocks": sum_blocks, "taps": taps, "taps_x": p.w.shape[3], **strides_of("out", p.w.strides), "scratch": Scratch(scratch),
        "scratch_bytes": scratch, "pitch": pitch // size,
    }  # fmt: skip
    sum_key = f"convolution:weight_sum:{element.name}:{tile.width}:{facts.vector_bits}:{'dense' if dense else 'strided'}"
    sum_units = p.groups * sum_blocks
    sum_bytes = partials * p.groups * k * padded * facts.sums.memory_bytes + numel(p.w) * p.dtype.itemsize
    return describe(
        f"convolution_weight_sum_{element.name}", sum_key, partial(_sum, facts, dense), words, reads=(temporary_id,), writes=(p.w.root,),
        units=sum_units, bytes=sum_bytes,
        nodes=(node_index,),
        min_units_per_thread=maximum(1, (64 << 10) * sum_units // maximum(1, sum_bytes)),
    )  # fmt: skip


def _sum(facts: Facts, dense: bool, b: Builder, w: dict[str, str]) -> None:
    """The second kernel: out[o][k] = sum over partials of partial[k][o]. A unit is `_SUM_VECTORS` vectors of rows k of one group.

    The rows are summed one after the other, as they lie in memory, and then transposed from the cache. `dense`: the k of an output lie together.
    """
    element, sums, width = facts.element, facts.sums, facts.tile.width
    compute, size, type_ = sums.compute, sums.compute_bytes, vector(sums.compute, width)
    buffer = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    if dense:
        b.allocas.append(f"  %square = alloca [{width * width} x {compute}], align 64")
    step = b.mul(b.mul(w["groups"], w["k"]), w["padded"])
    block = _SUM_VECTORS * width
    with b.for_("%begin", "%end") as u:
        g, k0 = b.op(f"udiv i64 {u}, {w['blocks']}"), b.mul(b.op(f"urem i64 {u}, {w['blocks']}"), block)
        valid = b.min(block, b.sub(w["k"], k0))
        first = b.gep(compute, w["partial"], b.mul(b.add(b.mul(g, w["k"]), k0), w["padded"]))
        with b.for_(0, valid) as row:
            source, target = b.gep(compute, first, b.mul(row, w["padded"])), b.gep(compute, buffer, b.mul(row, w["pitch"]))
            with b.for_(0, w["padded"], width) as o:
                here = b.gep(compute, source, o)
                (total,) = b.loop(0, w["partials"], 1, lambda s, old: [
                    sums.add(b, width, old, b.load(type_, b.gep(compute, here, b.mul(s, step)), size))
                ], [(type_, sums.zero(width))])  # fmt: skip
                b.store(type_, total, b.gep(compute, target, o), size)
        if dense:
            with b.for_(0, w["outputs"], width) as o:
                some = b.min(width, b.sub(w["outputs"], o))
                all_outputs = b.op(f"icmp eq i64 {some}, {width}")
                with b.for_(0, valid, width) as k:
                    mask = bit_mask(b, width, 0, b.sub(valid, k))
                    source = b.gep(compute, buffer, b.add(b.mul(k, w["pitch"]), o))
                    # Rows beyond K hold what was there before; nothing stores what they give.
                    loaded = [b.load(type_, b.gep(compute, source, b.mul(w["pitch"], i)), size) for i in range(width)]
                    turned = transpose_vectors(b, compute, loaded)
                    to = b.gep(element.memory, w["out"], b.add(b.mul(b.add(b.mul(g, w["outputs"]), o), w["out_batch"]), b.add(k0, k)))

                    def put(i: int | str, value: str) -> None:
                        at = b.gep(element.memory, to, b.mul(w["out_batch"], i))
                        b.masked_store(element.memory, width, element.narrow(b, width, value), at, mask, element.memory_bytes)

                    with b.if_(all_outputs):
                        for i, value in enumerate(turned):
                            put(i, value)
                    with b.if_(b.op(f"xor i1 {all_outputs}, true")):
                        for i, value in enumerate(turned):
                            b.store(type_, value, b.gep(compute, "%square", i * width), size)
                        with b.for_(0, some) as output:
                            put(output, b.load(type_, b.gep(compute, "%square", b.mul(output, width)), size))
        else:
            with b.for_(0, valid) as row:
                k = b.add(k0, row)
                c, tap = b.op(f"udiv i64 {k}, {w['taps']}"), b.op(f"urem i64 {k}, {w['taps']}")
                ty, tx = b.op(f"udiv i64 {tap}, {w['taps_x']}"), b.op(f"urem i64 {tap}, {w['taps_x']}")
                at = b.add(b.mul(c, w["out_channel"]), b.add(b.mul(ty, w["out_y"]), b.mul(tx, w["out_x"])))
                to = b.gep(element.memory, w["out"], b.add(at, b.mul(b.mul(g, w["outputs"]), w["out_batch"])))
                source = b.gep(compute, buffer, b.mul(row, w["pitch"]))
                with b.for_(0, w["outputs"]) as o:
                    value = element.narrow(b, 1, b.load(compute, b.gep(compute, source, o), size))
                    b.store(element.memory, value, b.gep(element.memory, to, b.mul(o, w["out_batch"])), element.memory_bytes)
