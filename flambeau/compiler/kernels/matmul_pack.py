"""Matrix products: packing, which copies a block of an operand into panels that the micro-kernel reads in order.

A panel has `lanes` rows of a (or columns of b) and all of the block's k: element (k, lane) is at k * lanes + lane, in
the compute type. A complex panel has, for each k, `lanes` real parts and then `lanes` imaginary parts. Panels follow
each other k * lanes * parts elements apart. Lanes beyond the operand's last row hold copies of it or zeros: their
results are never stored, but they must not be denormal or NaN rubbish, which would slow the machine down.

    void name(ptr source, i64 lane_stride, i64 k_stride, i64 count, i64 k, ptr panels)

packs `count` rows (columns) of the source. Which stride is 1 is a fact of the generated text: "lane", "k" or "none".
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernel import Function, Word
from flambeau.compiler.kernels.description import Writer, native
from flambeau.compiler.kernels.matmul_blocking import block
from flambeau.compiler.kernels.matmul_driver import PACK, TILE, TILE_FETCHING, Driver, Way
from flambeau.compiler.kernels.matmul_element import FEW_ROWS, Element, Facts, Tile, few_rows_tile
from flambeau.compiler.kernels.matmul_micro import call_least, micro_kernel, store_part
from flambeau.runtime.target import Target
from flambeau.symbols import roughly_less, roughly_over

# Elements that a full-width store may write past a panel's end: the panel's successor or this slack takes them.
SLACK_VECTORS = 2


def pack(
    b: Builder, element: Element, width: int, lanes: int, unit: str, name: str, linkage: str = "internal"
) -> str:  # fmt: skip
    """Text of a packing function for panels of `lanes`, where the stride of `unit` ("lane", "k" or "none") is 1."""
    parts = element.parts
    if unit == "lane" and parts == 1 and width > 1:
        _copy(b, element, width, lanes)
    else:
        with b.for_(0, "%count", lanes) as first:
            count = b.min(lanes, b.sub("%count", first))
            target = b.gep(element.compute, "%panels", b.mul(b.mul(first, "%k"), parts))
            source = b.gep(element.memory, "%source", b.mul(b.mul(first, "%lane_stride"), parts))
            if parts == 2 or unit == "none" or width == 1:
                _scalar(b, element, lanes, source, target, count, "0")
            else:
                _transpose(b, element, width, lanes, source, target, count)
    return b.define(name, PACK, linkage)


def _scalar(b: Builder, element: Element, lanes: int, source: str, target: str, count: str, first_k: str) -> None:
    """Element by element from `first_k` on, any strides; lanes past `count` repeat the last one."""
    parts = element.parts
    last = b.sub(count, 1)
    with b.for_(first_k, "%k") as k:
        from_k = b.gep(element.memory, source, b.mul(b.mul(k, "%k_stride"), parts))
        to_k = b.gep(element.compute, target, b.mul(k, lanes * parts))
        with b.for_(0, lanes) as lane:
            from_lane = b.mul(b.mul(b.min(lane, last), "%lane_stride"), parts)
            for part in range(parts):
                value = b.load(element.memory, b.gep(element.memory, from_k, b.add(from_lane, part)), element.memory_bytes)
                out = b.gep(element.compute, to_k, b.add(lane, part * lanes))
                b.store(element.compute, element.widen(b, 1, value), out, element.compute_bytes)


def _copy(b: Builder, element: Element, width: int, lanes: int) -> None:
    """Rows of k are contiguous: for each k, all panels, in the order in which the source lies in memory."""
    vectors = -(-lanes // width)
    type_ = vector(element.compute, width)
    whole = b.mul(b.sdiv("%count", lanes), lanes)
    rest = b.sub("%count", whole)
    rest_masks = [b.tail_mask(b.sub(rest, v * width), width) for v in range(vectors)]
    # Lanes of a panel's vectors that belong to it: a store must not reach the next k, nor the next panel.
    lane_masks = ["" if (v + 1) * width <= lanes else b.tail_mask(str(lanes - v * width), width) for v in range(vectors)]
    with b.for_(0, "%k") as k:
        from_k = b.gep(element.memory, "%source", b.mul(k, "%k_stride"))
        to_k = b.gep(element.compute, "%panels", b.mul(k, lanes))

        def some(first: str, masks: list[str]) -> None:
            target = b.gep(element.compute, to_k, b.mul(first, "%k"))
            for v in range(vectors):
                at = b.gep(element.memory, b.gep(element.memory, from_k, first), v * width)
                if masks[v]:
                    value = b.masked_load(element.memory, width, at, masks[v], element.memory_bytes)
                else:
                    value = b.load(vector(element.memory, width), at, element.memory_bytes)
                wide, to = element.widen(b, width, value), b.gep(element.compute, target, v * width)
                if lane_masks[v]:
                    b.masked_store(element.compute, width, wide, to, lane_masks[v], element.compute_bytes)
                else:
                    b.store(type_, wide, to, element.compute_bytes)

        with b.for_(0, whole, lanes) as first:
            some(first, lane_masks)
        with b.if_(b.op(f"icmp sgt i64 {rest}, 0")):
            some(whole, rest_masks)


def _transpose(b: Builder, element: Element, width: int, lanes: int, source: str, target: str, count: str) -> None:
    """k runs along memory: transpose blocks of width x width in registers. The last block of k is moved back so that it
    ends at the end (the elements that it repeats are the same); a k below the width goes element by element."""
    memory, compute = vector(element.memory, width), vector(element.compute, width)
    last = b.sub(count, 1)
    rows = [b.gep(element.memory, source, b.mul(b.min(lane, last), "%lane_stride")) for lane in range(lanes)]
    last_block = b.sub("%k", width)
    next_panel = b.mul("%lane_stride", lanes)
    with b.if_(b.op(f"icmp sge i64 {last_block}, 0")), b.for_(0, "%k", width) as k_wanted:
        k = b.min(k_wanted, last_block)
        columns: list[list[str]] = []  # columns[group][j]: `width` lanes at k + j
        for group in range(0, lanes, width):
            loaded = []
            for i in range(width):
                if group + i >= lanes:
                    loaded.append("zeroinitializer")
                    continue
                at = b.gep(element.memory, rows[group + i], k)
                # The same piece of the next panel: the hardware does not follow so many rows at once.
                following = b.gep(element.memory, at, next_panel)
                b.prefetch(following)
                value = b.load(memory, at, element.memory_bytes)
                loaded.append(element.widen(b, width, value))
            columns.append(transpose_vectors(b, element.compute, loaded, small_first=True))
            if lanes % width == 0:  # no store spills over: store group by group, with fewer live registers
                _store_columns(b, element, compute, columns, k, group, width, lanes, target, [len(columns) - 1])
        if lanes % width:
            _store_columns(b, element, compute, columns, k, 0, width, lanes, target, list(range(len(columns))))
    with b.if_(b.op(f"icmp slt i64 {last_block}, 0")):
        _scalar(b, element, lanes, source, target, count, "0")


def _store_columns(
    b: Builder, element: Element, compute: str, columns: list[list[str]], k: str, group: int, width: int, lanes: int,
    target: str, which: list[int],
) -> None:  # fmt: skip
    del group
    for j in range(width):
        at_k = b.gep(element.compute, target, b.mul(b.add(k, j), lanes))
        for g in which:
            b.store(compute, columns[g][j], b.gep(element.compute, at_k, g * width), element.compute_bytes)


# -- The functions of a blocked product ------------------------------------------------------------------------------
# Micro-kernels and packing take most of the compiler's time and depend on little: they are functions of their own
# (`kernel.Function`), which all products share. The kernel itself is the loops around them and the epilogue.


def tile_dispatch(b: Builder, tile: Tile, widths: tuple[int, ...], name: str, fetches_b: bool) -> str:
    """Text of `tile(...)`: the least micro-kernel that covers rows x columns."""
    parameters = TILE_FETCHING if fetches_b else TILE
    call_least(b, "micro", parameters.arguments, ("%rows", 1, tile.heights), ("%columns", tile.width, widths))
    return b.define(name, parameters, "")


def shared(facts: Facts) -> tuple[Facts, dict[str, Word]]:
    """The words of the functions that a kernel calls, and the facts that are left to the kernel itself."""
    words: dict[str, Word] = {
        "tile": tile_function(facts), "pack_a": pack_function(facts, "a"), "pack_b": pack_function(facts, "b")
    }  # fmt: skip
    if facts.direct:
        return replace(facts, c_unit="any", a_unit="any"), words
    return replace(facts, c_unit="any", b_unit="any"), words


def tile_function(facts: Facts) -> Function:
    """The micro-kernels of a tile size, and the choice among them."""
    element, tile = facts.element, facts.tile
    key = f"matmul:tile:{element.key}:{tile.key}:c={facts.c_unit}{':direct' * facts.direct}:{facts.vector_bits}"
    # Products of few columns are read directly; for the others a last, half empty panel matters little.
    widths = tile.widths if facts.direct else (tile.vectors,)
    helpers: list[Writer] = [
        partial(
            micro_kernel, element=element, tile=tile, height=height, vectors=vectors, packed=not facts.direct,
            name=f"micro_{height}x{vectors}", unit_c=facts.c_unit == "column",
            fetches_b=facts.fetches_b,
        )
        for height in tile.heights for vectors in widths
    ]  # fmt: skip
    helpers.append(partial(store_part, element=element, tile=tile, c_unit=facts.c_unit))
    return native(key, lambda name, b: tile_dispatch(b, tile, widths, name, facts.fetches_b), *helpers)


def pack_function(facts: Facts, operand: str) -> Function:
    """The packing of a or b."""
    element, tile = facts.element, facts.tile
    lanes, unit = (tile.rows, facts.a_unit) if operand == "a" else (tile.columns, facts.b_unit)
    key = f"matmul:pack:{element.name}:{lanes}:{tile.width}:{unit}:{facts.vector_bits}"
    return native(key, lambda name, b: pack(b, element, tile.width, lanes, unit, name, linkage=""))


def packed_way(facts: Facts, m: int, n: int, k: int, batches: int, host: Target) -> Way:
    """A product by the vector unit's multiply-adds."""
    element, tile = facts.element, facts.tile
    plain_rows = not element.converts and facts.b_unit == "lane" and element.parts == 1
    few_rows = plain_rows and not roughly_over(m, FEW_ROWS) and not roughly_less(n, m)
    if few_rows:
        facts = replace(facts, tile=few_rows_tile(tile, m, host.registers))
    blocking = block(element, facts.tile, m, n, k, batches, host, few_rows)
    facts, functions = shared(replace(facts, direct=blocking.direct))
    return Way("blocked", Driver, facts, blocking, functions)
