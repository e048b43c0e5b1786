"""Matrix products: block sizes, from the sizes of the product and of the caches.

After Low, Igual, Smith and Quintana-Orti 2016, "Analytical modeling is enough for high-performance BLIS": a panel of
a (rows x kc) and one of b (kc x columns) fit in the first-level cache; a block of b (kc x b_columns) takes a quarter
of the second level. kc depends on sizes only (it orders the additions); the rest may follow the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.compiler.kernels.matmul_element import Element, Tile, register_tile
from flambeau.runtime.target import Target
from flambeau.symbols import Sym, least, maximum, minimum, roughly_over


@dataclass(frozen=True, slots=True)
class Blocking:
    """mc, nc, kc: block sizes in elements. `a_panels`: bytes from a worker's scratch to its panels of a."""

    mc: int
    nc: int
    kc: int
    row_panels: int
    column_blocks: int
    b_columns: int  # columns of b that are packed together; direct: between two calls of the epilogue
    a_panels: int
    scratch_bytes: int
    min_units: int
    grain: int  # units that a thread takes at a time: row panels of one rectangle
    direct: bool  # a is read where it lies
    pack_b: bool  # even where it could be read where it lies
    row_step: int  # rows of a panel


def ceil_div(x: int, y: int) -> int:
    return -(-x // y)


def round_up(x: int, to: int) -> int:
    return ceil_div(x, to) * to


def longest_k_block(element: Element, host: Target) -> int:
    """The most terms of one accumulator: what fits the first-level cache, 64 to 256."""
    tile = register_tile(element, host.vector_bits, host.registers)
    # 256 float32 at 48 KiB: the panels of a and b together just fit (192 to 512 differ by 5 %). Longer blocks, where
    # tiles are narrower, would be less accurate.
    fits = host.caches[0] // ((tile.columns + tile.rows) * element.compute_bytes * element.parts) // 16 * 16
    return min(256, max(64, fits))


def k_block(element: Element, k: int, host: Target) -> int:
    """kc. Depends on K, the element and the machine only: whichever tile computes a product, its bits are the same."""
    if element.converts or k <= 0:
        return maximum(k, 1)
    blocks = ceil_div(k, longest_k_block(element, host))
    return round_up(ceil_div(k, blocks), 16)


def row_step(tile: Tile, m: int) -> int:
    """Rows of a panel: of the micro-kernels' heights, the one whose panels, with the last one, take the least time."""

    if m.__class__ is Sym:
        return tile.rows  # which height fits best differs from size to size

    def cost(step: int) -> float:
        rest = m % step
        last = min((h for h in tile.heights if h >= rest), default=0) if rest else 0
        packs = 0 if rest == 0 or rest in tile.heights else 2  # a last panel of another height must be filled up
        return (m // step) * (step + 1) + (last + 1 + packs if rest else 0)  # about one row's time a call

    return min(tile.heights[:2], key=lambda step: (cost(step), -step))


def grid(step: int, columns: int, m: int, n: int, threads: int, widest: int) -> tuple[int, int, int, int]:
    """(nc, column blocks, row panels, grain): m x n results, in panels of `step` rows and of `columns`, for `threads`.

    Threads share the product as a grid of equal rectangles, one each: each packs its own rows of a and columns of b, so
    take the grid with the least to pack: its columns of b once, its rows of a once for each block of b, of at most about
    `widest` columns. Batch items share nothing: with enough of them, each is one rectangle.
    """
    row_panels = ceil_div(m, step)

    def packed(across: int) -> int:
        columns_each = ceil_div(n, across)
        return ceil_div(row_panels, ceil_div(threads, across)) * step * ceil_div(columns_each, widest) + columns_each

    across = least(range(1, threads + 1), packed)
    nc = minimum(round_up(n, columns), round_up(ceil_div(n, across), columns))
    column_blocks = ceil_div(n, nc)
    grain = ceil_div(row_panels, minimum(row_panels, ceil_div(threads, column_blocks)))
    return nc, column_blocks, round_up(row_panels, grain), grain


def block(
    element: Element, tile: Tile, m: int, n: int, k: int, batches: int, host: Target, few_rows: bool = False
) -> Blocking:  # fmt: skip
    """Blocks of an m x n x k product for `host`. `few_rows`: b is read where it lies."""
    size = element.compute_bytes * element.parts
    kc = k_block(element, k, host)
    # Packing an element costs as much as 16 to 64 multiply-adds of it; rows far apart also crowd the caches. (Nothing
    # is packed for k <= 16: bound by writing c.)
    many = roughly_over(n, 384) or (roughly_over(n, 64) and roughly_over(m * k * size, host.caches[1] // 4))
    short = not roughly_over(k, 16)
    direct = element.parts == 1 and not element.converts and (short or few_rows or not many)
    pack_b = not short and not few_rows and (roughly_over(m, 64) or roughly_over(k * n * size, host.caches[1] // 2))
    step = row_step(tile, m) if direct else tile.rows
    mc = maximum(1, host.caches[1] // 2 // (kc * size) // step) * step
    mc = round_up(ceil_div(m, ceil_div(m, mc + mc // 4)), step)  # equal blocks: no thin last one
    if short:  # run along the rows of c
        mc = step
    # Measured with 2 MiB: a quarter of the second level; a half and an eighth are up to 5 % slower.
    widest = maximum(1, host.caches[1] // 4 // (kc * size) // tile.columns) * tile.columns
    widest += widest // 4  # no thin last block
    nc, column_blocks, row_panels, grain = grid(step, tile.columns, m, n, ceil_div(host.workers, batches), maximum(n, 1) if direct else widest)
    slack = 2 * tile.width * element.compute_bytes
    if direct:
        b_columns = maximum(1, host.caches[1] // 4 // (mc * element.itemsize) // tile.columns) * tile.columns
        panels = 1
    else:
        b_columns = round_up(ceil_div(nc, ceil_div(nc, widest)), tile.columns)
        panels = minimum(nc, b_columns) // tile.columns
    a_panels = round_up(panels * tile.columns * kc * size + slack, 64)
    scratch = a_panels + round_up(tile.rows * kc * size + slack, 64)
    # A thread is worth its start from about 5 microseconds on: a million operations.
    per_unit = 2 * step * minimum(n, nc) * maximum(k, 1)
    return Blocking(
        mc, nc, kc, row_panels, column_blocks, minimum(nc, b_columns), a_panels, scratch,
        min_units=maximum(1, 1_000_000 // per_unit),
        direct=direct, pack_b=pack_b, row_step=step, grain=grain,
    )  # fmt: skip
