"""Convolutions: the weight's gradient, as a product of patches and the transposed gradient of the output.

    dw^T[k][o] = sum over images and pixels of P[k][p] * g^T[p][o]          k = (channel, tap row, tap column)

    for each unit: (partial sum, group, range of channels)
        for each chunk of pixels (at most `CHUNK`, of one image) of the partial sum
            transpose the chunk of g: panels [p][output channels]
            pack the patches of the chunk: rows k, pixels next to each other
            for each panel of k, each panel of output channels              the micro-kernel, adding to the partial sum
    then add the partial sums in their order, transpose, and store           (a second kernel)

The partial sums and chunks depend on sizes only, hence so does the order of all additions. Sums over a chunk are added to
sums of chunks: the error grows with sqrt(pixels / CHUNK) and not with the number of pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder, module, vector
from flambeau.compiler.graph import Graph, contiguous_strides
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_patches import WORDS, Geometry, bit_mask, pack_patches, read_kind
from flambeau.compiler.kernels.convolution_problem import COMPUTE_DTYPE, Problem, load_words, numel, temporary
from flambeau.compiler.kernels.convolution_transpose import transpose_vectors
from flambeau.compiler.kernels.matmul_blocking import ceil_div, machine, round_up
from flambeau.compiler.kernels.matmul_element import Element, Tile, element_of, register_tile
from flambeau.compiler.kernels.matmul_micro import micro_kernel, micro_name, store_part
from flambeau.compiler.kernels.matmul_packed import Epilogue, tile_dispatch
from flambeau.dtypes import BY_NAME

CHUNK = 128  # pixels: 14 rows of patches and 64 channels of g are 39 KiB of float32, and fit a first-level cache
_PATCH_ROWS = 512  # rows of patches packed at a time: 256 KiB of float32
_PARTIALS = 16  # at most: enough for the threads of one socket, and cheap to add
_UNITS = 32
_POINTERS = ("g", "x", "partial", "scratch")
_NAMES = (
    *_POINTERS, "groups", "splits", "partials", "chunks", "image_chunks", "pixels", "outputs", "channels", "split_channels",
    "channel_block", "taps", "padded", "g_batch", "g_channel", "x_batch", "x_channel", "scratch_bytes", "transposed_offset",
    "patches_offset",
)  # fmt: skip
_SUM_POINTERS = ("partial", "out")
_SUM_NAMES = (
    *_SUM_POINTERS, "partials", "groups", "k", "outputs", "padded", "blocks", "taps", "taps_x", "out_row", "out_channel",
    "out_y", "out_x",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Facts:
    """`element` in memory; `sums`: what is accumulated; kinds: how rows of g and of x are read."""

    element: Element
    sums: Element
    tile: Tile
    vector_bits: int
    g_kind: str
    x_kind: str

    def key(self) -> str:
        t = self.tile
        return f"{self.element.name}:{t.rows}x{t.vectors}x{t.width}:{self.vector_bits}:{self.g_kind}:{self.x_kind}"


def make_weight_gradient(graph: Graph, p: Problem, node_index: int, epilogue: Epilogue | None) -> list[Kernel]:
    """Kernels of `convolution_weight_gradient`: the partial sums, then their sum (which has no epilogue)."""
    if epilogue is not None:
        raise ValueError("convolution_weight_gradient: no epilogue can be applied, its result is not made in rectangles")
    host = machine()
    element = element_of(p.dtype)
    sums_dtype = BY_NAME[COMPUTE_DTYPE[element.compute]]
    sums = element_of(sums_dtype)
    tile = register_tile(sums, host.vector_bits, host.registers)
    (sy, sx), (py, px), (dy, dx) = p.stride, p.padding, p.dilation
    kernel_y, kernel_x = p.w.shape[2:]
    taps, channels, outputs = kernel_y * kernel_x, p.group_inputs, p.group_outputs
    k = channels * taps
    _, _, height, width = p.x.shape
    _, _, out_height, out_width = p.y.shape
    pixels = out_height * out_width
    x_column = 1 if width == 1 else p.x.strides[3]
    g_column = 1 if out_width == 1 else p.y.strides[3]
    x_geometry = Geometry(
        kernel_y, kernel_x, sy, sx, -py, -px, dy, dx, out_width, height, width, p.x.strides[1], p.x.strides[2], x_column
    )
    g_geometry = Geometry(1, 1, 1, 1, 0, 0, 1, 1, out_width, out_height, out_width, p.y.strides[1], p.y.strides[2], g_column)
    if p.y.strides[2] == out_width * g_column:  # no rows
        g_geometry = replace(g_geometry, width=pixels, source_height=1, source_width=pixels)
    facts = Facts(element, sums, tile, host.vector_bits, read_kind(1, g_column), read_kind(sx, x_column))

    image_chunks = ceil_div(pixels, CHUNK)
    chunks = p.batch * image_chunks
    padded = round_up(outputs, tile.width)
    bytes_each = p.groups * k * padded * sums.memory_bytes
    partials = max(1, min(chunks, p.batch * pixels // 2048, _PARTIALS, (64 << 20) // bytes_each)) if chunks else 0
    splits = max(1, min(channels, k // 64, _UNITS // max(1, partials * p.groups)))
    split_channels = ceil_div(channels, splits)
    splits = ceil_div(channels, split_channels)
    channel_block = max(1, min(split_channels, _PATCH_ROWS // taps))
    size = sums.memory_bytes
    transposed = round_up(outputs, tile.width) * CHUNK * size
    patches = transposed + round_up(outputs, tile.columns) * CHUNK * size
    scratch = patches + (channel_block * taps + tile.rows) * CHUNK * size
    temporary_id = temporary(graph, max(1, partials * bytes_each // size), sums_dtype)
    words: list[Word] = [
        p.y.word, p.x.word, Address(temporary_id), Scratch(scratch), p.groups, splits, partials, chunks, image_chunks, pixels,
        outputs, channels, split_channels, channel_block, taps, padded, p.y.strides[0], p.y.strides[1], p.x.strides[0],
        p.x.strides[1], scratch, transposed, patches, *g_geometry.words(), *x_geometry.words(),
    ]  # fmt: skip
    key = f"convolution:weight_gradient:{facts.key()}"
    units = partials * p.groups * splits
    itemsize = p.dtype.itemsize
    products = Kernel(
        name=f"convolution_weight_gradient_{element.name}", key=key, emit=partial(_emit_products, facts, key), words=words,
        reads=tuple(dict.fromkeys((p.y.root, p.x.root))), writes=(temporary_id,), units=units,
        bytes=(numel(p.x) + numel(p.y)) * itemsize + partials * bytes_each, operations=p.operations, nodes=(node_index,),
        min_units_per_thread=max(1, 2_000_000 * units // max(1, p.operations)),
    )  # fmt: skip
    dense = p.w.strides[1:] == contiguous_strides(p.w.shape)[1:]
    blocks = ceil_div(k, tile.width)
    sum_words: list[Word] = [
        Address(temporary_id), p.w.word, partials, p.groups, k, outputs, padded, blocks, taps, kernel_x, *p.w.strides,
    ]  # fmt: skip
    sum_key = f"convolution:weight_sum:{element.name}:{tile.width}:{host.vector_bits}:{'dense' if dense else 'strided'}"
    sum_units = p.groups * blocks
    sum_bytes = partials * bytes_each + numel(p.w) * itemsize
    combine = Kernel(
        name=f"convolution_weight_sum_{element.name}", key=sum_key, emit=partial(_emit_sum, facts, dense, sum_key),
        words=sum_words, reads=(temporary_id,), writes=(p.w.root,), units=sum_units, bytes=sum_bytes, nodes=(node_index,),
        min_units_per_thread=max(1, (64 << 10) * sum_units // max(1, sum_bytes)),
    )  # fmt: skip
    return [products, combine] if units else [combine]


def _emit_products(facts: Facts, key: str) -> str:
    from flambeau.runtime.jit import symbol

    sums, tile = facts.sums, facts.tile
    functions: list[str] = []
    declarations: set[str] = set()

    def define(write: Callable[[Builder], str]) -> None:
        b = Builder()
        functions.append(write(b))
        declarations.update(b.declarations)

    widths = tuple(range(tile.vectors, 0, -1))
    for height in tile.heights:
        for vectors in widths:
            define(partial(_micro, sums, tile, height, vectors))
    define(lambda b: tile_dispatch(b, sums, tile, tile.heights, widths, micro_name))
    define(lambda b: store_part(b, sums, tile, "column"))
    define(lambda b: pack_patches(b, facts.element, tile.width, CHUNK, facts.g_kind, "copy_gradient"))
    define(lambda b: pack_patches(b, facts.element, tile.width, CHUNK, facts.x_kind))
    define(lambda b: _transpose_chunk(b, sums, tile))
    define(lambda b: _driver(b, facts, symbol(key)))
    return module(functions, declarations, facts.vector_bits)


def _micro(element: Element, tile: Tile, height: int, vectors: int, b: Builder) -> str:
    return micro_kernel(b, element, tile, height, vectors, packed=False, name=micro_name(height, vectors))


def _driver(b: Builder, facts: Facts, symbol: str) -> str:
    memory, compute, tile = facts.element.memory, facts.sums.compute, facts.tile
    w = load_words(b, "%args", len(_POINTERS), _NAMES)
    g_geometry = b.gep("i64", "%args", len(_NAMES))
    x_geometry = b.gep("i64", "%args", len(_NAMES) + WORDS)
    copied = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    transposed, patches = b.gep("i8", copied, w["transposed_offset"]), b.gep("i8", copied, w["patches_offset"])
    k_total = b.mul(w["channels"], w["taps"])

    def unit(u: str) -> None:
        rest, split = b.op(f"udiv i64 {u}, {w['splits']}"), b.op(f"urem i64 {u}, {w['splits']}")
        s, g = b.op(f"udiv i64 {rest}, {w['groups']}"), b.op(f"urem i64 {rest}, {w['groups']}")
        c_low = b.mul(split, w["split_channels"])
        c_high = b.min(w["channels"], b.add(c_low, w["split_channels"]))
        first = b.sdiv(b.mul(s, w["chunks"]), w["partials"])
        after = b.sdiv(b.mul(b.add(s, 1), w["chunks"]), w["partials"])
        sums = b.gep(compute, w["partial"], b.mul(b.mul(rest, k_total), w["padded"]))

        def chunk(q: str) -> None:
            n = b.op(f"udiv i64 {q}, {w['image_chunks']}")
            p = b.mul(b.op(f"urem i64 {q}, {w['image_chunks']}"), CHUNK)
            columns = b.min(CHUNK, b.sub(w["pixels"], p))
            add = b.op(f"icmp sgt i64 {q}, {first}")
            g_channel = b.mul(b.mul(g, w["outputs"]), w["g_channel"])
            b.call("void", "copy_gradient", [
                ("ptr", g_geometry), ("ptr", b.gep(memory, w["g"], b.add(b.mul(n, w["g_batch"]), g_channel))), ("i64", p),
                ("i64", columns), ("i64", w["outputs"]), ("ptr", copied),
            ], declare=False)  # fmt: skip
            b.call("void", "transpose_chunk", [
                ("ptr", copied), ("ptr", transposed), ("i64", w["outputs"]), ("i64", columns),
            ], declare=False)  # fmt: skip

            def channel_block(c: str) -> None:
                count = b.min(w["channel_block"], b.sub(c_high, c))
                x_channel = b.mul(b.add(b.mul(g, w["channels"]), c), w["x_channel"])
                b.call("void", "pack_patches", [
                    ("ptr", x_geometry), ("ptr", b.gep(memory, w["x"], b.add(b.mul(n, w["x_batch"]), x_channel))), ("i64", p),
                    ("i64", columns), ("i64", count), ("ptr", patches),
                ], declare=False)  # fmt: skip
                rows = b.mul(count, w["taps"])
                block = b.gep(compute, sums, b.mul(b.mul(c, w["taps"]), w["padded"]))

                def k_panel(r: str) -> None:
                    tall = b.min(tile.rows, b.sub(rows, r))
                    a = b.gep(compute, patches, b.mul(r, CHUNK))
                    row = b.gep(compute, block, b.mul(r, w["padded"]))

                    def output_panel(o: str) -> None:
                        wide = b.min(tile.columns, b.sub(w["padded"], o))
                        b.call("void", "tile", [
                            ("i64", columns), ("ptr", a), ("i64", str(CHUNK)), ("i64", "1"),
                            ("ptr", b.gep(compute, transposed, b.mul(o, CHUNK))), ("i64", str(tile.columns)),
                            ("ptr", b.gep(compute, row, o)), ("i64", w["padded"]), ("i64", "1"), ("i1", add), ("i64", tall),
                            ("i64", wide),
                        ], declare=False)  # fmt: skip

                    b.loop(0, w["padded"], tile.columns, output_panel)

                b.loop(0, rows, tile.rows, k_panel)

            b.loop(c_low, c_high, w["channel_block"], channel_block)

        b.loop(first, after, 1, chunk)

    b.loop("%begin", "%end", 1, unit)
    return b.function(KERNEL_HEADER.format(name=symbol), "ret i64 0")


def _transpose_chunk(b: Builder, element: Element, tile: Tile) -> str:
    """Text of `transpose_chunk(copied, transposed, outputs, columns)`: rows [o][CHUNK] to panels [p][tile.columns]."""
    width, size, type_ = tile.width, element.compute_bytes, vector(element.compute, tile.width)

    def outputs(o: str) -> None:
        panel = b.mul(b.sdiv(o, tile.columns), tile.columns)
        target = b.gep(element.compute, "%transposed", b.add(b.mul(panel, CHUNK), b.sub(o, panel)))
        source = b.gep(element.compute, "%copied", b.mul(o, CHUNK))

        def pixels(p: str) -> None:
            at = b.gep(element.compute, source, p)
            rows = [b.load(type_, b.gep(element.compute, at, i * CHUNK), size) for i in range(width)]
            to = b.gep(element.compute, target, b.mul(p, tile.columns))
            for i, row in enumerate(transpose_vectors(b, element.compute, width, rows)):
                b.store(type_, row, b.gep(element.compute, to, i * tile.columns), size)

        b.loop(0, "%columns", width, pixels)

    b.loop(0, "%outputs", width, outputs)
    return b.function(
        "define internal void @transpose_chunk(ptr noalias %copied, ptr noalias %transposed, i64 %outputs, i64 %columns) #0"
    )


def _emit_sum(facts: Facts, dense: bool, key: str) -> str:
    """The second kernel: out[o][k] = sum over partials of partial[k][o]. A unit is `width` rows k of one group."""
    from flambeau.runtime.jit import symbol

    element, sums, width = facts.element, facts.sums, facts.tile.width
    compute, size, type_ = sums.compute, sums.compute_bytes, vector(sums.compute, width)
    b = Builder()
    w = load_words(b, "%args", len(_SUM_POINTERS), _SUM_NAMES)
    b.allocas.append(f"  %buffer = alloca [{width * width} x {compute}], align 64")
    step = b.mul(b.mul(w["groups"], w["k"]), w["padded"])
    last_row = b.sub(w["k"], 1)

    def unit(u: str) -> None:
        g, k0 = b.op(f"udiv i64 {u}, {w['blocks']}"), b.mul(b.op(f"urem i64 {u}, {w['blocks']}"), width)
        valid = b.min(width, b.sub(w["k"], k0))
        group = b.gep(compute, w["partial"], b.mul(b.mul(g, w["k"]), w["padded"]))
        # Rows beyond K read the last row; nothing stores what they give.
        rows = [b.gep(compute, group, b.mul(b.min(b.add(k0, i), last_row), w["padded"])) for i in range(width)]

        def outputs(o: str) -> None:
            def add(s: str, *acc: str) -> list[str]:
                at = b.add(b.mul(s, step), o)
                return [
                    sums.add(b, width, old, b.load(type_, b.gep(compute, row, at), size))
                    for old, row in zip(acc, rows, strict=True)
                ]

            total = b.loop(0, w["partials"], 1, add, [(type_, sums.zero(width))] * width)
            for i, row in enumerate(transpose_vectors(b, compute, width, total)):
                b.store(type_, row, b.gep(compute, "%buffer", i * width), size)

            def output(i: str) -> None:
                source = b.gep(compute, "%buffer", b.mul(i, width))
                row = b.add(b.mul(g, w["outputs"]), b.add(o, i))
                target = b.gep(element.memory, w["out"], b.mul(row, w["out_row"]))
                if dense and width > 1:
                    value = element.narrow(b, width, b.load(type_, source, size))
                    mask = bit_mask(b, width, 0, valid)
                    b.masked_store(element.memory, width, value, b.gep(element.memory, target, k0), mask, element.memory_bytes)
                    return

                def weight(j: str) -> None:
                    k = b.add(k0, j)
                    c, tap = b.op(f"udiv i64 {k}, {w['taps']}"), b.op(f"urem i64 {k}, {w['taps']}")
                    ty, tx = b.op(f"udiv i64 {tap}, {w['taps_x']}"), b.op(f"urem i64 {tap}, {w['taps_x']}")
                    at = b.add(b.mul(c, w["out_channel"]), b.add(b.mul(ty, w["out_y"]), b.mul(tx, w["out_x"])))
                    value = element.narrow(b, 1, b.load(compute, b.gep(compute, source, j), size))
                    b.store(element.memory, value, b.gep(element.memory, target, at), element.memory_bytes)

                b.loop(0, valid, 1, weight)

            b.loop(0, b.min(width, b.sub(w["outputs"], o)), 1, output)

        b.loop(0, w["outputs"], width, outputs)

    b.loop("%begin", "%end", 1, unit)
    text = b.function(KERNEL_HEADER.format(name=symbol(key)), "ret i64 0")
    return module([text], b.declarations, facts.vector_bits)
