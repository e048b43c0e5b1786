"""How a block is spread over the threads of a GPU's program: which elements each thread holds in registers, and the multiply-add of a warp.

A layout gives the places of one thread's elements, as many for each thread. `ROWS` is for everything; `Sums` is how `mma.sync` wants the sums of a
product (the PTX ISA's figures for .m16n8k16), so what a product makes stays where it is until it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final, Protocol

from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.tile.forms import Coordinate, Coordinates

THREADS: Final = 128  # of a program: four warps
WARP: Final = 32
WARPS: Final = THREADS // WARP
TILE_M, TILE_N, TILE_K = 16, 8, 16  # of one `mma.sync` of 16-bit numbers
PAD: Final = 8  # numbers between rows of an operand in shared memory: eight rows side by side touch all banks


class Layout(Protocol):
    """Where a thread's elements of a block are."""

    def places(self, c: Code, thread: Lanes, shape: tuple[int, ...]) -> list[Coordinates]:
        """The coordinates of the thread's elements."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Element `thread + i * THREADS` of the block in row-major order is the thread's number i. Threads without one have the block's first elements."""

    def places(self, c: Code, thread: Lanes, shape: tuple[int, ...]) -> list[Coordinates]:
        count = prod(shape)
        found = []
        for first in range(0, count, THREADS):
            rest: Lanes = thread + first if first else thread & (count - 1) if count < THREADS else thread
            at: list[Coordinate] = []
            for size in reversed(shape):  # powers of two
                at.insert(0, Coordinate(rest & (size - 1)))
                rest = c.divide(rest, size)
            found.append(tuple(at))
        return found


ROWS: Final = Rows()


@dataclass(frozen=True, slots=True)
class Sums:
    """Blocks of m x n: each warp has a rectangle of tiles of 16 x 8, four elements a thread. Where there are fewer tiles than warps, some have the same."""

    m: int
    n: int

    @property
    def warps(self) -> tuple[int, int]:
        """Warps along m and n: as square as there are tiles for."""
        down = min(2, self.m // TILE_M)
        across = min(WARPS // down, self.n // TILE_N)
        return min(WARPS // across, self.m // TILE_M), across

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles of a warp along m and n."""
        down, across = self.warps
        return self.m // TILE_M // down, self.n // TILE_N // across

    def corner(self, c: Code, thread: Lanes) -> tuple[Lanes, Lanes]:
        """Row and column where the thread's warp begins."""
        down, across = self.warps
        warp = c.divide(thread, WARP) & (down * across - 1)
        return c.divide(warp, across) * (self.m // down), (warp & (across - 1)) * (self.n // across)

    def places(self, c: Code, thread: Lanes, shape: tuple[int, ...]) -> list[Coordinates]:
        row, column = self.corner(c, thread)
        row, column = row + c.divide(thread & (WARP - 1), 4), column + (thread & 3) * 2
        down, across = self.tiles
        return [
            (Coordinate(row + (TILE_M * i + 8 * half)), Coordinate(column + (TILE_N * j + second)))
            for i in range(down) for j in range(across) for half in range(2) for second in range(2)
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Staged:
    """An operand of a product in shared memory: k runs along rows of `pitch` elements, as they are in memory."""

    array: Array
    pitch: int

    def pair(self, row: Lanes, k: Lanes) -> Lanes:
        """Two neighbours of k as one i32, the first in its low half."""
        return self.array.at(row * self.pitch + k, "i32")[0]


def multiply_tiles(c: Code, sums: Sums, thread: Lanes, kind: str, left: Staged, right: Staged, acc: list[Lanes], k: int) -> list[Lanes]:
    """acc + left @ right by `mma.sync`, 16 of k at a time; `kind` is "bfloat16" or "float16"."""
    corner = sums.corner(c, thread)
    lane = thread & (WARP - 1)
    row, column = corner[0] + c.divide(lane, 4), corner[1] + c.divide(lane, 4)
    pair = (lane & 3) * 2
    down, across = sums.tiles
    for k0 in range(0, k, TILE_K):
        # Rows 0 to 7 and 8 to 15, then the same of the upper half of k.
        rows = [[left.pair(row + (TILE_M * i + 8 * low), pair + (k0 + 8 * high)) for high in range(2) for low in range(2)] for i in range(down)]
        columns = [[right.pair(column + TILE_N * j, pair + (k0 + 8 * high)) for high in range(2)] for j in range(across)]
        for i in range(down):
            for j in range(across):
                at = 4 * (i * across + j)
                acc[at : at + 4] = _mma(c, kind, [*rows[i], *columns[j]], acc[at : at + 4])
    return acc


def _mma(c: Code, kind: str, operands: list[Lanes], acc: list[Lanes]) -> list[Lanes]:
    """One `mma.sync.m16n8k16`: four words of a, two of b, four sums."""
    type_, name = ("i32", "bf16") if kind == "bfloat16" else ("<2 x half>", "f32.f32")
    words = [x.name if kind == "bfloat16" else c.b.op(f"bitcast i32 {x.name} to <2 x half>") for x in operands]
    arguments = [*((type_, w) for w in words), *(("float", x.name) for x in acc)]
    result = c.b.call("{ float, float, float, float }", f"llvm.nvvm.mma.m16n8k16.row.col.{name}", arguments)
    return [c.named("float", c.b.op(f"extractvalue {{ float, float, float, float }} {result}, {i}")) for i in range(4)]


def multiply_ones(places: list[Coordinates], left: Staged, right: Staged, acc: list[Lanes], k: Lanes) -> list[Lanes]:
    """acc + left @ right at one k, a multiply-add for each of the thread's places."""
    found = []
    for (i, j), total in zip(places, acc, strict=True):
        assert isinstance(i.base, Lanes) and isinstance(j.base, Lanes)
        a, b = left.array[i.base * left.pitch + k], right.array[j.base * right.pitch + k]
        found.append(a.fma(b, total) if total.is_float else a * b + total)
    return found
