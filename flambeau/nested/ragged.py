"""How rows of different lengths lie one after another: offsets, lengths, and the size that has no number."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import flambeau as torch
from flambeau.tensor import Tensor

_counter = itertools.count(1)


class RaggedSize:
    """The size of the ragged dim, as shapes show it: j1, or 4*j1. Equal only to itself; it is at least 2, as far as comparisons with numbers go."""

    __slots__ = ("factor", "number")
    is_symbolic_size = True  # it may stand in a torch.Size

    def __init__(self, number: int, factor: int = 1) -> None:
        self.number = number
        self.factor = factor

    def __repr__(self) -> str:
        return f"j{self.number}" if self.factor == 1 else f"{self.factor}*j{self.number}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedSize) and (self.number, self.factor) == (other.number, other.factor)

    def __hash__(self) -> int:
        return hash((RaggedSize, self.number, self.factor))

    def __mul__(self, other: Any) -> RaggedSize:
        return RaggedSize(self.number, self.factor * int(other))

    __rmul__ = __mul__

    def _least(self, other: Any) -> bool:
        if isinstance(other, int) and other <= 2:
            return True
        raise RuntimeError(f"nested int: the ragged size {self!r} cannot be compared with {other!r}: each row has a length of its own (lengths())")

    def __ge__(self, other: Any) -> bool:
        return self == other or self._least(other)

    def __gt__(self, other: Any) -> bool:
        return self._least(other + 1 if isinstance(other, int) else other)

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __le__(self, other: Any) -> bool:
        return self == other or not self > other


class Ragged:
    """Where the rows of a jagged tensor lie in its values: row i is values[offsets[i] : offsets[i] + lengths[i]].

    `lengths` is None where each row ends where the next begins. One object exists for the same tensors of offsets and lengths, so that tensors made of
    them fit together.
    """

    __slots__ = ("__weakref__", "_indices", "_sizes", "lengths", "offsets", "size")

    def __init__(self, offsets: Tensor, lengths: Tensor | None) -> None:
        self.offsets = offsets
        self.lengths = lengths
        self.size = RaggedSize(next(_counter))
        self._sizes: list[int] | None = None
        self._indices: Tensor | None = None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.offsets.shape[0]) - 1

    def sizes(self) -> list[int]:
        """The length of each row (this looks at the values of the offsets once)."""
        if self._sizes is None:
            ends = self.offsets.tolist()
            self._sizes = [b - a for a, b in itertools.pairwise(ends)] if self.lengths is None else self.lengths.tolist()
        return self._sizes

    def starts(self) -> list[int]:
        """Where each row starts."""
        return self.offsets.tolist()[:-1]  # type: ignore[no-any-return]

    def longest(self) -> int:
        """The greatest length."""
        return max(self.sizes(), default=0)

    def row_of(self) -> Tensor:
        """For each place of the values (rows without gaps), the row that it belongs to."""
        if self._indices is None:
            self._indices = torch.repeat_interleave(torch.arange(self.rows), torch.tensor(self.sizes(), dtype=torch.int64))
        return self._indices

    def place_of(self) -> Tensor:
        """For each place of the values (rows without gaps), where it stands in its row."""
        return torch.cat([torch.arange(n) for n in self.sizes()]) if self.rows else torch.arange(0)

    def mask(self, width: int) -> Tensor:
        """(rows, width): whether a place of the padded tensor is filled."""
        return torch.arange(width) < torch.tensor(self.sizes(), dtype=torch.int64)[:, None]

    def __reduce__(self) -> Any:
        return ragged, (self.offsets, self.lengths)


_KNOWN: weakref.WeakValueDictionary[tuple[int, int], Ragged] = weakref.WeakValueDictionary()


def ragged(offsets: Tensor, lengths: Tensor | None = None) -> Ragged:
    """The one Ragged of these tensors."""
    key = id(offsets), id(lengths)
    found = _KNOWN.get(key)
    if found is None:
        found = _KNOWN[key] = Ragged(offsets, lengths)
    return found


def of_sizes(sizes: list[int]) -> Ragged:
    """Rows of these lengths, one after another."""
    made = ragged(torch.tensor([0, *itertools.accumulate(sizes)], dtype=torch.int64))
    made._sizes = sizes
    return made
