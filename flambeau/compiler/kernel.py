"""What `lower` makes of a fused group of nodes: a kernel, its argument words and its work, ready for the plan.

A kernel is one native function `i64 kernel(ptr args, i64 begin, i64 end, i64 worker)` (see emit/builder.py). `args` points
to 8-byte words described by `words`. It returns 0, or 1 after writing an error record (three i64: 1, value, bound).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from flambeau.runtime.target import Target
from flambeau.runtime.untracked import record

# Added to an index (or taken from it) by who refuses it: outside of every range, and the error can still name the index.
REFUSED: Final = 1 << 62


class IndexRangeError(IndexError, RuntimeError):
    """An index value out of range. PyTorch raises IndexError or RuntimeError, depending on the function.

    Of one that a kernel has found: `value`, the size that it must be below, and the failing step of its plan. `located`: its text names the place.
    """

    value = 0
    bound: int | None = None
    step: int | None = None
    located = False


def refused_index(value: int) -> int:
    """The index as it was given."""
    return value - REFUSED if value > REFUSED // 2 else value + REFUSED if value < -REFUSED // 2 else value


@record
@dataclass(slots=True, frozen=True)
class Address:
    """Word: address of element `offset` (bytes, plus parameter * multiplier bytes for each dynamic pair) of a value's buffer.

    `value` is a root (materialised) value id or a parameter's value id.
    """

    value: int
    offset: int = 0
    dynamic: tuple[tuple[int, int], ...] = ()


@record
@dataclass(slots=True, frozen=True)
class Scratch:
    """Word: address of `per_worker * workers + shared` bytes, 64-byte aligned, private to the kernel, undefined content.

    The per-worker areas come first: worker w owns [w * per_worker, (w + 1) * per_worker). per_worker is a multiple of 64.
    """

    per_worker: int
    shared: int = 0


@record
@dataclass(slots=True, frozen=True)
class ErrorRecord:
    """Word: address of the plan's error record."""


@record
@dataclass(slots=True, frozen=True, weakref_slot=True)
class Function:
    """Word: address of a native function that several kernels call; `key` and `emit` are like a kernel's.

    What is long and common (micro-kernels, packing) is compiled once, not once in each kernel.
    """

    key: str
    emit: Callable[[Target], str]


@record
@dataclass(slots=True, frozen=True)
class Table:
    """Word: address of constant numbers, 64-byte aligned, which `tables.py` makes from a name and arguments that are plain numbers and names."""

    name: str
    arguments: tuple[int | str, ...]


Word = int | Address | Scratch | ErrorRecord | Function | Table


def float_word(number: float) -> int:
    """A double as the word with its bits."""
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


@record
@dataclass(slots=True)
class Kernel:
    """One native function and one use of it.

    `key` says everything the generated text depends on, and nothing else: no sizes (they are run-time words), unless a
    size is a fact that the code specialises on. Equal keys share one compiled function, in the process and on disk.
    `emit` gives the whole module's IR text for a target, defining the symbol `flambeau.runtime.jit.symbol(key)`.
    """

    name: str  # for people: "add_mul_tanh", "matmul_f32", "softmax"
    key: str
    emit: Callable[[Target], str]
    words: list[Word]
    reads: tuple[int, ...]  # root value ids (and parameters)
    writes: tuple[int, ...]  # root value ids
    units: int  # amount of divisible work; the runner gives [begin, end) ranges of it to threads
    bytes: int  # memory traffic of all units, for the floor
    operations: int = 0  # arithmetic of all units
    nodes: tuple[int, ...] = ()  # indices of the graph's nodes inside
    in_place: tuple[tuple[int, int], ...] = ()  # (write, read) pairs of roots that may share one buffer
    fails: str | None = None  # text of the IndexError if the kernel reports one: may use {value} and {bound}
    grain: int = 1  # units are handed out in multiples of this
    min_units_per_thread: int = 1  # below this a further thread is not worth its start
    zero_first: tuple[int, ...] = ()  # writes whose buffer must be zero before the kernel starts
    starts_as: tuple[tuple[int, int], ...] = ()  # (write, read): the write's buffer must hold the read root's content, byte
    #   for byte, before the kernel starts (scatter_view, put_rows, ...): `place` shares the buffer if the read root is dead
    #   afterwards, else it copies. The kernel writes only the elements that change and lists the read in `reads`.
    notes: list[str] = field(default_factory=list)  # why two neighbours were not fused, for `explain`
    moves: tuple[int, int, int] | None = None  # (source, target, bytes): all it does is copy a dense value into another, from there on

    def share(self) -> None:
        """Give it the emitters that others with the same keys have: each holds the description that its kernel was made from."""
        self.emit = _emitters.setdefault(self.key, self.emit)
        self.words = [_functions.setdefault(w.key, w) if type(w) is Function else w for w in self.words]


_emitters: Final[WeakValueDictionary[str, Callable[[Target], str]]] = WeakValueDictionary()
_functions: Final[WeakValueDictionary[str, Function]] = WeakValueDictionary()
