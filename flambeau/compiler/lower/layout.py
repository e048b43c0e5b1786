"""Loop order, joined loops, the vector loop, stride classes: from the statements over raw loops to a `Nest` and a
`Kernel`.

Loops of size 1 go; the others are ordered by the strides of what is stored (row loops) or read (reduced loops),
outermost first; two neighbours become one loop where every access steps through them as through one. Shapes that
differ in their sizes only then give the same nest, so the same machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from flambeau import exact
from flambeau.compiler.emit import loop_tiles
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, ErrorRecord, Kernel, Scratch, Word
from flambeau.compiler.lower.spec import (
    ONE,
    OTHER,
    ZERO,
    Access,
    Block,
    Compute,
    Layout,
    Nest,
    Reduce,
    Sizes,
    Store,
    check,
    words_of,
)
from flambeau.compiler.lower.statements import Body, RawAccess, weight
from flambeau.compiler.summation import SHOWN
from flambeau.runtime.target import Target
from flambeau.symbols import as_int, at_most, maximum, roughly_over, same

CHECK: list[bool] = [False]  # prove every nest legal after lowering (tests switch it on)

# Points of the vector loop in one unit of work of a pointwise nest: 16 KB of float32, some microseconds.
CHUNK: Final = 4096
# Rows of so few elements are reduced one in each lane, though lanes then read across memory: adding the lanes of a
# vector up would take longer than the row (measured: 10^6 rows of 3 float32, 0.9 ms instead of 4.3).
SHORT_ROW: Final = 8
# Vectors side by side in a reduction of columns: what is read of each row must be long enough for the memory to stream
# (4096 x 4096 float32, 2 threads: sum(0) takes 4.5 ms with 4, 2.7 ms with 16; amax(0) 4.7 and 2.4 ms).
WIDE_COLUMNS: Final = 16


def order(loops: set[int], sizes: dict[int, int], accesses: Sequence[RawAccess], stores_first: bool) -> list[int]:
    """`loops` of more than one point, outermost first: by the strides of the accesses that move most along them."""

    def rank(access: RawAccess) -> tuple[int, int]:
        moving = sum(1 for loop in loops if access.strides.get(loop))
        return (-moving, (access.role == "store") != stores_first)

    ranked = sorted((a for a in accesses if a.role in ("load", "store")), key=rank)
    kept = [loop for loop in sorted(loops) if sizes[loop] != 1]
    return sorted(kept, key=lambda loop: tuple(-abs(a.strides.get(loop, 0)) for a in ranked))


def join(loops: list[int], sizes: dict[int, int], accesses: Sequence[RawAccess]) -> list[int]:
    """Join neighbours (outer, inner) where stride(outer) = stride(inner) * size(inner) in every access; changes
    both."""
    out: list[int] = []
    for loop in loops:
        if out:
            outer = out[-1]
            if all(a.strides.get(outer, 0) == a.strides.get(loop, 0) * sizes[loop] for a in accesses):
                sizes[loop] *= sizes[outer]
                for a in accesses:
                    a.strides.pop(outer, None)
                out[-1] = loop
                continue
        out.append(loop)
    return out


SHOWN_UNROLL = 2


def lanes_of(accesses: Sequence[RawAccess], target: Target) -> int:
    """Vector width in elements: a whole register of the kernel's main dtype (narrow floats are computed as float32)."""
    bits = target.vector_bits
    sizes = {a.dtype.to_real().itemsize for a in accesses if a.role in ("load", "store") and a.strides}
    if 4 in sizes or 2 in sizes:
        return bits // 32
    if sizes and max(sizes) == 1:
        return bits // 16
    return bits // 64


def prefers_columns(accesses: Sequence[RawAccess], row: list[int], reduced: list[int], sizes: dict[int, int]) -> bool:
    """Whether the lanes should be different rows: the innermost row loop is contiguous where the reduced one is not."""
    if not row:
        return False
    if not reduced:
        return True
    if prod(sizes[loop] for loop in reduced) <= SHORT_ROW:
        return True
    votes = 0.0
    for a in accesses:
        if a.role in ("load", "store") and (a.strides.get(reduced[-1], 0) or a.strides.get(row[-1], 0)):
            full = any(a.strides.get(loop) for loop in reduced)
            points = prod(sizes[loop] for loop in a.strides)
            if a.strides.get(reduced[-1]) == 1 and full:
                votes -= points
            elif a.strides.get(row[-1]) == 1 and full:
                votes += points
    if votes == 0:
        return sizes[row[-1]] > sizes[reduced[-1]]
    return votes > 0


def make_kernel(
    graph: Graph, body: Body, sizes: dict[int, int], name: str, nodes: tuple[int, ...],
    blocks_loop: int = -1,
) -> Kernel:  # fmt: skip
    """The kernel of a body. `blocks_loop`: the row loop that gives blocks of the longest reduced loop (-1: none)."""
    sizes = dict(sizes)
    blocks = sizes.get(blocks_loop, 1)
    accesses = [a for a in body.accesses if a.role != "cache"]
    row = order(body.row_loops - {blocks_loop}, sizes, accesses, True)
    row = join(row, sizes, accesses)
    reduced_loops = order(body.reduced_loops, sizes, accesses, False)
    reduced_loops = join(reduced_loops, sizes, accesses)
    if body.reduced_loops and not reduced_loops:
        reduced_loops = [min(body.reduced_loops)]
    if not row and not body.reduced_loops:
        row = [_one_point(sizes, accesses)]
    columns = prefers_columns(accesses, row, reduced_loops, sizes)
    points = prod(sizes[loop] for loop in (*row, *reduced_loops))
    width = 1 if points <= 1 and not reduced_loops else lanes_of(accesses, graph.target)
    weights = [sum(weight(s.op) if isinstance(s, Compute) else 0 for s in block.body) for block in body.blocks]
    has_stage = any(block.stage for block in body.blocks)
    reductions = sum(isinstance(s, Reduce) for block in body.blocks for s in block.body)
    unroll = _unroll(max(weights, default=0), has_stage, columns, reductions) if width > 1 else 1
    if has_stage and not columns and width > 1 and any(a.dtype in SHOWN for a in accesses):
        unroll = SHOWN_UNROLL  # partial sums are as many whatever the reduction is fused with (summation.py)
    wide = WIDE_COLUMNS * width
    # What runs once a column (an optimizer's step on a bias, say) is short beside what runs on every row.
    every_row = max([w for w, block in zip(weights, body.blocks, strict=True) if block.stage], default=0)
    light = columns and reductions == 1 and every_row <= 2 and width > 1
    # Units enough for the threads.
    if light and roughly_over(sizes[row[-1]], wide - 1) and roughly_over(prod(sizes[loop] for loop in row), 4 * wide - 1):
        unroll = WIDE_COLUMNS
    outer = list(row)
    split = -1
    if blocks_loop >= 0:
        outer.insert(len(outer) - 1 if columns else len(outer), blocks_loop)
        split = max(reduced_loops, key=lambda loop: (sizes[loop], -loop))
    loops = outer + reduced_loops
    vector = len(outer) - 1 if columns else len(loops) - 1
    chunk = _chunk(sizes, row, reduced_loops, width * unroll) if columns else 1
    caches = _place_caches(body, sizes, reduced_loops, loops, vector if columns else -1, width * unroll)
    tile_loop, transposed = _find_tile(body.accesses, row, sizes, width) if not body.reduced_loops else (-1, ())
    if tile_loop >= 0:
        outer.remove(tile_loop)
        outer.insert(len(outer) - 1, tile_loop)
        loops = outer
        chunk = loop_tiles.COLUMNS
    nest = Nest(
        len(outer), len(reduced_loops), vector, width, unroll,
        tuple(access_class(a, loops, sizes) for a in body.accesses),
        tuple(Block(block.stage, tuple(block.body)) for block in body.blocks),
        tuple(d.name for d in body.dtypes),
        loops.index(split) if split >= 0 else -1, outer.index(blocks_loop) if split >= 0 else -1,
        outer.index(tile_loop) if tile_loop >= 0 else -1, transposed,
        _streams(graph, body, sizes, loops[vector]), not reduced_loops and _is_far(graph, body, sizes, loops[vector]),
    )  # fmt: skip
    if CHECK[0]:
        check(nest, sizes_of(graph, body, sizes, loops))
    block = 0
    if split >= 0:  # whole cache lines in a block where the loop is contiguous; blocks at the end may be empty
        block = -(-sizes[split] // blocks)
        block = -(-block // 64) * 64 if split == loops[-1] else block
    return _kernel(graph, nest, body, sizes, loops, (chunk, block), caches, name, nodes)


def _streams(graph: Graph, body: Body, sizes: dict[int, int], vector: int) -> bool:
    """Whether the stores should bypass the cache: the results are large and every vector of them is aligned."""
    updated = {value for _, value in graph.updates}
    stores = [a for a in body.accesses if a.role == "store" and a.strides.get(vector)]
    if not roughly_over(sum([prod(sizes[loop] for loop in a.strides) * a.dtype.itemsize for a in stores]), graph.target.costs.stream_bytes - 1):
        return False
    for a in stores:
        size = a.dtype.itemsize
        if a.strides[vector] != 1 or a.offset or a.dynamic or a.value in updated:
            return False
        if any(stride * size % 64 for loop, stride in a.strides.items() if loop != vector):
            return False
    return True


def _is_far(graph: Graph, body: Body, sizes: dict[int, int], vector: int) -> bool:
    """Whether what the vectors read is too much for the caches to have it."""
    loads = [a for a in body.accesses if a.role == "load" and a.strides.get(vector) == 1]
    return roughly_over(sum([prod(sizes[loop] for loop in a.strides) * a.dtype.itemsize for a in loads]), graph.target.costs.stream_bytes - 1)


def _find_tile(accesses: Sequence[RawAccess], row: list[int], sizes: dict[int, int], width: int) -> tuple[int, tuple[int, ...]]:
    """The loop along which operands are contiguous that jump along the vector loop, and those operands (-1: none)."""
    inner = row[-1]
    if width == 1 or not roughly_over(sizes[inner], width - 1):
        return -1, ()
    across: dict[int, list[int]] = {}
    for number, a in enumerate(accesses):
        if a.role == "load" and abs(a.strides.get(inner, 0)) > 1 and a.dtype.itemsize <= 8:
            for loop in row[:-1]:
                if a.strides.get(loop) == 1 and roughly_over(sizes[loop], width - 1):
                    across.setdefault(loop, []).append(number)
    if not across:
        return -1, ()
    loop = max(across, key=lambda x: (len(across[x]), -x))
    return loop, tuple(across[loop])


def _one_point(sizes: dict[int, int], accesses: Sequence[RawAccess]) -> int:
    loop = max(sizes, default=-1) + 1
    sizes[loop] = 1
    return loop


def _unroll(heaviest: int, has_stage: bool, columns: bool, reductions: int) -> int:
    """Vectors in flight: enough independent chains to hide latencies, few enough to stay in the registers."""
    if has_stage and columns:
        return 4 if reductions <= 2 and heaviest <= 12 else 2 if reductions <= 4 and heaviest <= 40 else 1
    if has_stage:
        return 4 if heaviest <= 12 else 2 if heaviest <= 40 else 1
    return 4 if heaviest <= 6 else 2 if heaviest <= 40 else 1


def _chunk(sizes: dict[int, int], row: list[int], reduced: list[int], step: int) -> int:
    """Points of the vector loop in a unit."""
    length = sizes[row[-1]]
    if not reduced:
        short = at_most(length, 2 * CHUNK)
        return short * maximum(1, length) + (1 - short) * CHUNK
    depth = maximum(1, prod(sizes[loop] for loop in reduced))
    return step * maximum(1, -(-CHUNK // (depth * step)))


def _place_caches(body: Body, sizes: dict[int, int], reduced: list[int], loops: list[int], columns: int, lanes: int) -> dict[int, int]:
    """Strides of the row caches; access -> bytes of one worker's area."""
    out = {}
    for number, access in enumerate(body.accesses):
        if access.role != "cache":
            continue
        step = lanes if columns >= 0 else 1
        access.strides = {}
        for loop in reversed(reduced):
            access.strides[loop] = step
            step *= sizes[loop]
        if columns >= 0:
            access.strides[loops[columns]] = 1
        out[number] = -(-step * access.dtype.itemsize // 64) * 64
    return out


def access_class(a: RawAccess, loops: list[int], sizes: dict[int, int]) -> Access:
    classes = []
    for loop in loops:
        stride = a.strides.get(loop, 0)
        classes.append(ZERO if stride == 0 else ONE if stride == 1 else OTHER)
    return Access(a.role, a.dtype.name, tuple(classes))


def sizes_of(graph: Graph, body: Body, sizes: dict[int, int], loops: list[int]) -> Sizes:
    layouts = []
    for a in body.accesses:
        numel = 0
        if a.value is not None:
            root = graph.values[a.value]
            numel = root.numel * root.dtype.itemsize // a.dtype.itemsize
        layouts.append(Layout(numel, a.offset, tuple(a.strides.get(loop, 0) for loop in loops), bool(a.dynamic)))
    return Sizes(tuple(sizes[loop] for loop in loops), tuple(layouts))


def _kernel(
    graph: Graph, nest: Nest, body: Body, sizes: dict[int, int], loops: list[int], steps: tuple[int, int],
    caches: dict[int, int],    name: str, nodes: tuple[int, ...],
) -> Kernel:  # fmt: skip
    chunk, block = steps
    words: list[Word] = []
    for word in words_of(nest):
        match word:
            case ("size", int(loop)):
                words.append(sizes[loops[loop]])
            case ("chunk",):
                words.append(chunk)
            case ("block",):
                words.append(block)
            case ("address", int(number)):
                words.append(_address(body.accesses[number], caches.get(number, 0)))
            case ("stride", int(number), int(loop)):
                words.append(body.accesses[number].strides[loops[loop]])
            case ("pitch", int(number)):
                words.append(caches[number])
            case ("tile",):
                areas = [loop_tiles.tile_bytes(body.accesses[a].dtype.itemsize) for a in nest.transposed]
                words.append(Scratch(sum(areas)))
            case ("error",):
                words.append(ErrorRecord())
            case _:
                raise RuntimeError(f"no word {word}")
    units = 1
    for position, loop in enumerate(loops[: nest.outer]):
        step = chunk if position == nest.vector else loop_tiles.ROWS if position == nest.tile else 1
        units *= -(-sizes[loop] // step)
    # `sizes` still has the loops that were joined into others; the blocks share the points of the reduced loop.
    spanned = [loop for position, loop in enumerate(loops) if position != nest.split_by]
    points = prod(sizes[loop] for loop in spanned)
    row_points = prod(sizes[loop] for loop in spanned if loop in body.row_loops)
    traffic, operations, nanoseconds = _work(graph, body, sizes, nest, points, row_points)
    costs = graph.target.costs
    memory = traffic / costs.bytes_per_nanosecond
    per_unit = maximum(memory, nanoseconds) / maximum(units, 1)
    reads = tuple(dict.fromkeys(_reads(body)))
    writes = tuple(dict.fromkeys(a.value for a in body.accesses if a.role == "store" and a.value is not None))
    key = "loops:" + str(graph.target.vector_bits) + ":" + key_of(nest)
    return Kernel(
        name, key, _emitter(nest, key), words, reads, writes, units, traffic, operations, nodes,
        in_place_pairs(graph, body),
        "index {value} is out of bounds for dimension with size {bound}" if nest.can_fail else None,
        min_units_per_thread=maximum(1, as_int(costs.thread_nanoseconds / maximum(per_unit, 1e-3))),
    )  # fmt: skip


def key_of(nest: Nest) -> str:
    """The facts as text, short: every field of the nest, statements by letters."""
    parts = [f"{nest.outer},{nest.reduced},{nest.vector},{nest.width},{nest.unroll},{nest.split},{nest.split_by}"]
    parts.append(f"{nest.tile},{nest.transposed},{int(nest.stream)},{int(nest.far)}")
    parts.append(",".join(f"{a.role}.{a.dtype}." + "".join(map(str, a.strides)) for a in nest.accesses))
    parts.append(",".join(nest.dtypes))
    for block in nest.blocks:
        text = []
        for s in block.body:
            match s:
                case Store(access, value):
                    text.append(f"s{access}.{value}")
                case Compute(out, op, inputs, attrs, base):
                    text.append(f"c{out}.{op}.{inputs}.{exact.text(attrs)}.{base}")
                case Reduce(outs, op, sources):
                    text.append(f"r{outs}.{op}.{sources}")
                case _:
                    text.append(f"l{s.out}.{s.access}")
        parts.append(("stage " if block.stage else "row ") + ";".join(text))
    return "|".join(parts).replace(" ", "")


def _emitter(nest: Nest, key: str) -> Callable[[Target], str]:
    def emit(target: Target) -> str:
        from flambeau.compiler.emit.loops import emit_nest
        from flambeau.runtime import jit

        return emit_nest(nest, jit.symbol(key), target)

    return emit


def _address(a: RawAccess, cache_bytes: int) -> Word:
    if a.role == "cache":
        return Scratch(cache_bytes)
    if a.value is None:
        return a.offset
    size = a.dtype.itemsize
    return Address(a.value, a.offset * size, tuple((p, m * size) for p, m in a.dynamic))


def _reads(body: Body) -> list[int]:
    out = []
    for a in body.accesses:
        if a.role in ("load", "base") and a.value is not None:
            out.append(a.value)
        out.extend(parameter for parameter, _ in a.dynamic)
    return out


def _work(graph: Graph, body: Body, sizes: dict[int, int], nest: Nest, points: int, row_points: int) -> tuple[int, int, float]:
    """Bytes of memory traffic, operations, and nanoseconds of arithmetic of one core."""
    traffic = 0
    for a in body.accesses:
        if a.value is None:
            continue
        if a.role == "base":
            traffic += points * a.dtype.itemsize
        else:
            traffic += prod(sizes[loop] for loop in a.strides if loop in sizes) * a.dtype.itemsize
    operations, total = 0, 0
    for block in body.blocks:
        count = points if block.stage else row_points
        for s in block.body:
            if isinstance(s, Compute | Reduce):
                operations += count
                total += count * weight(s.op)
            else:
                total += count // 2
    return traffic, operations, total * graph.target.costs.nanoseconds_per_weight * 16 / max(nest.width, 1)


def in_place_pairs(graph: Graph, body: Body) -> tuple[tuple[int, int], ...]:
    """(write, read) pairs of roots that may share a buffer: every element is read, last, where it is written."""
    uses: dict[int | None, list[RawAccess]] = {}
    for a in body.accesses:
        uses.setdefault(a.value, []).append(a)
    loaded = dict.fromkeys(a.value for a in body.accesses if a.role == "load" and a.value is not None and a.value not in graph.parameters)
    pairs = []
    for store in body.accesses:
        if store.role != "store" or store.value is None or store.dynamic:
            continue
        written = graph.values[store.value]
        for root in loaded:
            if same(graph.values[root].numel, written.numel) and all(
                a.role == "load" and a.strides == store.strides and a.offset == store.offset and not a.dynamic
                and a.dtype.itemsize == store.dtype.itemsize and max(a.blocks) <= min(store.blocks)
                for a in uses[root]
            ):  # fmt: skip
                pairs.append((store.value, root))
    return tuple(pairs)
