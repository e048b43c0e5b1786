"""Rules by letters: which dims of what is given and of the results are the same dim, as in einsum."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.distributed.tensor.calls import Ways
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

WHOLE = "-"  # a dim that is not cut
_NAMES = "abcdefghijklmnopqrstuvwxyz"


def names(count: int, skip: int = 0) -> str:
    """So many different letters."""
    return _NAMES[skip : skip + count]


def kept(count: int) -> tuple[tuple[Placement, ...], Placement]:
    """Everything whole."""
    return (Replicate(),) * count, Replicate()


def by_letters(ins: Sequence[str], out: str, linear: Sequence[Sequence[int]] = (), sums: bool = True) -> Ways:
    """The alternatives of a function with these dims.

    A letter of the result: it is cut there and where it is given. Another one, where `sums`: the results are parts of a sum. `linear`: sets of
    arguments in which the function is linear together, so that parts of sums stay that.
    """
    ways: Ways = [kept(len(ins))]
    for letter in dict.fromkeys("".join(ins)):
        if letter == WHOLE or (letter not in out and not sums):
            continue
        placed = tuple([Shard(i.index(letter)) if letter in i else Replicate() for i in ins])
        ways.append((placed, Shard(out.index(letter)) if letter in out else Partial()))
    for together in linear:
        ways.append((tuple([Partial() if i in together else Replicate() for i in range(len(ins))]), Partial()))
    return ways
