"""Convolutions by the matrix unit with images side by side: packing into steps of one pixel each.

Where the pairs that the matrix unit multiplies (or the rows of its tiles) are images and not pixels, a tap is another step and
nothing else: no zeros around images, any stride, and no place is computed that is no pixel. A step is, for one pixel, 32 lanes
by 32 of what is summed over (`depth`), as in matmul_parts_pack.py: for each part (hi, mid, lo) two tiles of 16 lanes.

    left: a tile's row = lane, 16 pairs of depth        right: a tile's row = pair of depth, 16 lanes

A pair is (d, d + 16), or (2 d, 2 d + 1) where the other operand has it so (`neighbours`, right only). Steps lie in the order
[group][panel of 32 lanes][block of 32 of depth][pixel], pixels filled up to a multiple of 16. What is beyond the last lane and the
last of depth is zero. Then come the extents (bfloat_parts.Extent) of every [group][panel][block][chunk of pixels]: two i32.

Pixels lie next to each other in the source, all rows of an image in one piece (`packs_apply`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel, Word
from flambeau.compiler.kernels.bfloat_parts import Extent, split_pairs
from flambeau.compiler.kernels.convolution_patches import bit_mask
from flambeau.compiler.kernels.convolution_problem import Operand, load_words, temporary
from flambeau.compiler.kernels.convolution_transpose import transpose_vectors
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_packed import module_of
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES, STEP_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.dtypes import uint8

EXTENT_BYTES: Final = 8
_WIDTH: Final = 16
_CHUNK: Final = 128  # pixels of a unit
_TYPE: Final = f"<{_WIDTH} x float>"
_NAMES: Final = (
    "source", "packed", "lanes", "depth", "panels", "blocks", "chunks", "chunk", "pixels", "lane_stride", "depth_stride",
    "group_stride", "panel_steps", "extents_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Steps:
    """An operand in steps. `value`: the graph's, of bytes; `steps`: of a block of depth; `extents_at`: a byte offset."""

    value: int
    panels: int
    blocks: int
    steps: int
    chunks: int
    extents_at: int


def is_flat(o: Operand) -> bool:
    """Whether the pixels of an image's channel lie next to each other."""
    height, width = o.shape[2:]
    return (width == 1 or o.strides[3] == 1) and (height == 1 or o.strides[2] == (width if width > 1 else 1))


def packed_bytes(lanes: int, depth: int, pixels: int) -> int:
    """What the steps of an operand of one group take, without extents."""
    return ceil_div(lanes, LANES) * ceil_div(depth, LANES) * round_up(pixels, _WIDTH) * STEP_BYTES


def pack_steps(
    graph: Graph, source: Operand, groups: int, lanes: tuple[int, int], depth: tuple[int, int], group_stride: int, left: bool, node: int,
    neighbours: bool = False,
) -> tuple[Steps, Kernel]:  # fmt: skip
    """The kernel that packs an operand. `lanes`, `depth`: (count in a group, stride)."""
    pixels = source.shape[2] * source.shape[3]
    panels, blocks = ceil_div(lanes[0], LANES), ceil_div(depth[0], LANES)
    chunk = round_up(ceil_div(pixels, ceil_div(pixels, _CHUNK)), _WIDTH)
    chunks = ceil_div(pixels, chunk)
    steps = round_up(pixels, _WIDTH)
    units = groups * panels * blocks * chunks
    extents_at = groups * packed_bytes(lanes[0], depth[0], pixels)
    value = temporary(graph, extents_at + units * EXTENT_BYTES, uint8)
    words: list[Word] = [
        source.word, Address(value), lanes[0], depth[0], panels, blocks, chunks, chunk, pixels, lanes[1], depth[1], group_stride,
        steps, extents_at,
    ]  # fmt: skip
    key = f"convolution:steps:{'left' if left else 'right'}{':neighbours' * neighbours}"
    elements = groups * lanes[0] * depth[0] * pixels
    kernel = Kernel(
        name="convolution_steps_float32", key=key, emit=partial(_emit, left, neighbours, key), words=words, reads=(source.root,), writes=(value,),
        units=units, bytes=4 * elements + extents_at, nodes=(node,), min_units_per_thread=max(1, (1 << 16) * units // elements),
    )  # fmt: skip
    return Steps(value, panels, blocks, steps, chunks, extents_at), kernel


def _emit(left: bool, neighbours: bool, key: str) -> str:
    from flambeau.runtime.jit import symbol

    return module_of([partial(_chunk, left, neighbours), partial(_kernel, symbol(key))], 512)


def _kernel(name: str, b: Builder) -> str:
    w = load_words(b, "%args", 2, _NAMES)

    def unit(u: str) -> None:
        at, chunk = b.op(f"udiv i64 {u}, {w['chunks']}"), b.op(f"urem i64 {u}, {w['chunks']}")
        first = b.mul(chunk, w["chunk"])
        block = b.mul(b.op(f"urem i64 {at}, {w['blocks']}"), LANES)
        panel = b.op(f"udiv i64 {at}, {w['blocks']}")
        lane = b.mul(b.op(f"urem i64 {panel}, {w['panels']}"), LANES)
        group = b.op(f"udiv i64 {panel}, {w['panels']}")
        offset = b.add(b.mul(group, w["group_stride"]), b.add(b.mul(lane, w["lane_stride"]), b.mul(block, w["depth_stride"])))
        step = b.add(b.mul(at, w["panel_steps"]), first)
        b.call("void", "pack_chunk", [
            ("ptr", b.gep("float", w["source"], b.add(offset, first))), ("i64", w["lane_stride"]), ("i64", w["depth_stride"]),
            ("i64", b.min(LANES, b.sub(w["lanes"], lane))), ("i64", b.min(LANES, b.sub(w["depth"], block))),
            ("i64", b.min(w["chunk"], b.sub(w["pixels"], first))), ("ptr", b.gep("i8", w["packed"], b.mul(step, STEP_BYTES))),
            ("ptr", b.gep("i8", w["packed"], b.add(w["extents_at"], b.mul(u, EXTENT_BYTES)))),
        ], declare=False)  # fmt: skip

    b.loop("%begin", "%end", 1, unit)
    return b.function(KERNEL_HEADER.format(name=name), "ret i64 0")


def _chunk(left: bool, neighbours: bool, b: Builder) -> str:
    """Text of `pack_chunk(source, lane_stride, depth_stride, lanes, depth, pixels, steps, extent)`."""
    extent = Extent(_WIDTH)
    types = [type_ for type_, _ in extent.start()]
    whole = b.op(f"icmp eq i64 {b.add('%lanes', '%depth')}, {2 * LANES}")
    # A tile's rows are `rows`, read one after the other; the vectors that are transposed lie `across`.
    across_count, across, along = ("%depth", "%depth_stride", "%lane_stride") if left else ("%lanes", "%lane_stride", "%depth_stride")
    rows_count = "%lanes" if left else "%depth"

    def pixels(p: str, *seen: str) -> list[str]:
        some = b.sub("%pixels", p)
        full = b.op(f"and i1 {whole}, {b.op(f'icmp sge i64 {some}, {_WIDTH}')}")
        source, target = b.gep("float", "%source", p), b.gep("i8", "%steps", b.mul(p, STEP_BYTES))
        b.store(types[0], seen[0], "%least", 64)
        b.store(types[1], seen[1], "%most", 64)

        def rows(masked: bool) -> None:
            mask = bit_mask(b, _WIDTH, 0, some) if masked else ""

            def block(row: str, first: int) -> list[str]:
                """16 vectors from `first` across on, of one row, transposed."""
                line = b.gep("float", source, b.mul(row, along))
                there = b.op(f"icmp slt i64 {row}, {rows_count}") if masked else ""
                loaded = []
                for i in range(first, first + _WIDTH):
                    at = b.gep("float", line, b.mul(across, i))
                    if masked:
                        exists = b.op(f"and i1 {there}, {b.op(f'icmp slt i64 {i}, {across_count}')}")
                        lanes = b.op(f"select i1 {exists}, <{_WIDTH} x i1> {mask}, <{_WIDTH} x i1> zeroinitializer")
                        loaded.append(b.masked_load("float", _WIDTH, at, lanes, 4))
                    else:
                        loaded.append(b.load(_TYPE, at, 4))
                        ahead = b.gep("float", at, _WIDTH)  # for the next pixels: 25 % of the time, where rows are far apart
                        b.call("void", "llvm.prefetch.p0", [("ptr", ahead), ("i32", "0"), ("i32", "2"), ("i32", "1")])
                return loaded

            def put(pair: tuple[list[str], list[str]], to: str, least: str, most: str) -> list[str]:
                for vectors in pair:
                    for value in vectors:
                        least, most = extent.include(b, value, least, most)
                turned = [transpose_vectors(b, "float", _WIDTH, vectors) for vectors in pair]
                for i, (low, high) in enumerate(zip(*turned, strict=True)):
                    for part, value in enumerate(split_pairs(b, _WIDTH, low, high)):
                        b.store(f"<{_WIDTH} x i32>", value, b.gep("i8", to, i * STEP_BYTES + part * PART_BYTES), 64)
                return [least, most]

            start = [(types[0], b.load(types[0], "%least", 64)), (types[1], b.load(types[1], "%most", 64))]
            if left:
                after = b.loop(0, LANES, 1, lambda lane, *now: put(
                    (block(lane, 0), block(lane, _WIDTH)), b.gep("i8", target, b.mul(lane, 64)), now[0], now[1]
                ), start)  # fmt: skip
            else:
                after = []
                for half in range(2):
                    to = b.gep("i8", target, 1024 * half)

                    def pair(d: str, *now: str, half: int = half, to: str = to) -> list[str]:
                        first, second = (b.mul(d, 2), b.add(b.mul(d, 2), 1)) if neighbours else (d, b.add(d, _WIDTH))
                        blocks = block(first, half * _WIDTH), block(second, half * _WIDTH)
                        return put(blocks, b.gep("i8", to, b.mul(d, 64)), now[0], now[1])

                    after = b.loop(0, _WIDTH, 1, pair, start if not after else list(zip(types, after, strict=True)))
            b.store(types[0], after[0], "%least", 64)
            b.store(types[1], after[1], "%most", 64)

        b.when(full, lambda: rows(False))
        b.when(b.op(f"xor i1 {full}, true"), lambda: rows(True))
        return [b.load(types[0], "%least", 64), b.load(types[1], "%most", 64)]

    b.allocas += [f"  %{name} = alloca {type_}, align 64" for name, type_ in zip(("least", "most"), types, strict=True)]
    seen = b.loop(0, "%pixels", _WIDTH, pixels, extent.start())
    for at, value in enumerate(extent.reduce(b, seen[0], seen[1])):
        b.store("i32", value, b.gep("i32", "%extent", at), 4)
    return b.function(
        "define internal void @pack_chunk(ptr noalias %source, i64 %lane_stride, i64 %depth_stride, i64 %lanes, i64 %depth, i64 %pixels, "
        "ptr noalias %steps, ptr noalias %extent) noinline #0"
    )


def whole_extent(b: Builder, packed: str, extents_at: str, first: str, count: str) -> tuple[str, str]:
    """(low, high) of `count` extents from number `first` on, as `bfloat_parts.are_safe` wants them."""
    start = b.gep("i8", packed, b.add(extents_at, b.mul(first, EXTENT_BYTES)))

    def include(i: str, low: str, high: str) -> list[str]:
        at = b.gep("i8", start, b.mul(i, EXTENT_BYTES))
        here = [b.load("i32", b.gep("i32", at, part), 4) for part in range(2)]
        return [
            b.call("i32", "llvm.smin.i32", [("i32", low), ("i32", here[0])]), b.call("i32", "llvm.smax.i32", [("i32", high), ("i32", here[1])]),
        ]  # fmt: skip

    low, high = b.loop(0, count, 1, include, [("i32", "1000"), ("i32", "0")])
    return low, high
