"""The product in registers: the one multiply-add loop of which the kernels of products, convolutions, attention and tile programs are made.

    sums[i][j] = start[i][j] + sum over k of left[i][k] * right[k][j]

The sums of a tile stay in registers while it runs through k, each a vector. A step is `rank_one`: every left operand (a number in all lanes, as a rule)
times every right one. What differs between kernels is given by them:

- `add`, the atom (Target.atoms): sums + left * right, by a fused multiply-add, several of them for complex numbers, or a dot instruction;
- `read`, the index maps of both operands: from a k to what is there in memory, in packed panels or in the planes of an image;
- the start, and what becomes of the sums.

Each sum adds its terms in the order of k, whatever the tile. So the bits depend neither on the tile nor on threads nor on the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from flambeau.compiler.emit.builder import Builder

L = TypeVar("L")
R = TypeVar("R")
S = TypeVar("S")
Operands = tuple[Iterable[L], Iterable[R]]


def rank_one(add: Callable[[L, R, S], S], left: Iterable[L], right: Iterable[R], sums: Iterable[S]) -> list[S]:
    """sums + left * right; the sums are by rows. `left` may be a generator: each row's operand stands just before its multiply-adds in the text then.
    So may `right`, where there is one row."""
    held = iter(sums)
    return [add(one, other, next(held)) for one in left for other in right]


def contract(
    b: Builder, k: str, start: list[tuple[str, str]], first: str | int = 0, step: int = 1, *, add: Callable[[L, R, Any], Any],
    read: Callable[[str], Iterable[Operands[L, R]]], parts: int = 0,
) -> list[str]:  # fmt: skip
    """The sums of a tile over [first, k). `start`: their types and values; `read` gives the operands at a step of k, once or several times. `parts`:
    operands and sums are tuples of so many values."""

    def terms(at: str, *values: str) -> list[str]:
        sums: list[Any] = [values[i : i + parts] for i in range(0, len(values), parts)] if parts else list(values)
        for left, right in read(at):
            sums = rank_one(add, left, right, sums)
        return [value for whole in sums for value in whole] if parts else sums

    return b.loop(first, k, step, terms, start)
