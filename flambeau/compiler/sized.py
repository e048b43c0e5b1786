"""One native program for all sizes of a plan over symbols: what of it depends on sizes is given to each run, as its last io words.

A program of exact sizes costs some 50 us to make: arrays of words, tables of tasks and phases, an entry. Most plans by class are small and run on one thread,
and differ by some ten words. So they share a program, whose relocations put these words where they belong when a run begins: argument words, places in
the arena, numbers of units. The native call does it, so nothing can come between the words of one size and their run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flambeau.runtime import threads
from flambeau.runtime.runner import Relocations, SizedProgram, chunk_of
from flambeau.symbols import Code, Sym, Text

if TYPE_CHECKING:
    from flambeau.compiler.plan import Layout, Numbers

MOST: Final = 256  # words that depend on sizes: a plan with more of them is long, and to make its program is not what it costs


# What of a plan depends on sizes: bytes of its fresh results, bytes of the arena, the words, whether it is small.
Row = tuple[tuple[int, ...], int, tuple[int, ...], int]


class Chunk(NamedTuple):
    """The units of the only chunk of a task of one lane."""

    units: Any
    grain: Any


class Sized:
    """Where the words that depend on sizes go, of the only native program of a plan over symbols.

    `words`, `plain`, `dynamic`: of the layout, without them. `expressions`: what they are, one for each io word behind the usual ones.
    `tasks`: [(address, first word, units, units a chunk)] of each phase, units 0 where they depend on sizes.
    """

    __slots__ = ("dynamic", "expressions", "layout", "phases", "plain", "row", "small", "tasks", "usual", "words")

    def __init__(self, layout: Layout, numbers: Numbers, usual: int) -> None:
        self.layout, self.usual = layout, usual
        self.expressions: list[Any] = []
        self.words = [0 if w.__class__ is Sym else w for w in layout.words]
        places: dict[Any, int] = {}  # io words by expression
        plain, dynamic = list(layout.plain), list(layout.dynamic)
        relocated = set(plain[::3])
        for i in range(0, len(plain), 3):
            if plain[i + 2].__class__ is Sym:
                dynamic += (plain[i], self._word(plain[i + 2], places), 1)
                plain[i + 2] = 0
        for i, w in enumerate(layout.words):
            if w.__class__ is Sym and i not in relocated:
                plain += (i, self._word(w, places), 0)
        self.tasks: list[list[tuple[int, int, int, int]]] = []
        self.phases = layout.phases
        at = len(self.words)  # the tables of the tasks lie behind the words, where relocations reach them
        for phase in layout.phases:
            rows = []
            for task in phase:
                fixed = task.units.__class__ is not Sym and task.grain.__class__ is not Sym
                if not fixed:
                    plain += (at + 2, self._word(task.units, places), 0, at + 3, self._word(Chunk(task.units, task.grain), places), 0)
                rows.append((task.address, task.first_word, *((task.units, chunk_of(task.units, task.grain)) if fixed else (0, 0))))
                at += 5
            self.tasks.append(rows)
        self.plain, self.dynamic = plain, dynamic
        self.small = layout.small
        self.row = tuple(numbers.fresh), numbers.arena_bytes

    def _word(self, n: Any, places: dict[Any, int]) -> int:
        name = id(n.expr) if n.__class__ is Sym else tuple([id(x.expr) if x.__class__ is Sym else ("plain", x) for x in (n if n.__class__ is Chunk else (n,))])
        at = places.get(name)
        if at is None:
            at = places[name] = self.usual + len(self.expressions)
            self.expressions.append(n)
        return at

    def program(self, format: str, small: bool) -> SizedProgram:
        """The program; `format`: of the usual io words; `small`: for sizes at which it is."""
        return SizedProgram(
            self.words, Relocations(self.plain, self.dynamic), self.tasks, self.usual + len(self.expressions), format + "q" * len(self.expressions), small,
            self.layout.functions,
        )  # fmt: skip

    def function(self, code: Code, **given: Any) -> Callable[[tuple[int, ...]], Row | None]:
        """The function of the sizes that gives the row, or None where a guard of `code` does not hold or the plan has work for several threads."""
        alone = []
        for phase in self.phases:
            work = [f"{code.structure(t.units)} / max({code.structure(t.min_units_per_thread)}, 1)" for t in phase]
            alone.append(" + ".join(work) + " >= 2")
        if alone:
            code.lines.append(f"if threads() > 1 and ({' or '.join(alone)}): return None")
        fresh, arena_bytes = self.row
        words = [Text(_chunk(code, n)) if n.__class__ is Chunk else n for n in self.expressions]
        return code.function(code.structure((fresh, arena_bytes, tuple(words), self.small)), threads=threads.count, **given)

    def at(self, row: Row) -> list[int]:
        """The words and the tables of the tasks as a run at these sizes finds them, with 0 for all usual io words."""
        io = [0] * self.usual + list(row[2])
        return relocated(
            [*self.words, *[n for phase in self.tasks for _, _, units, size in phase for n in (0, 0, units, size, 0)]], self.plain, self.dynamic, io
        )


def found_at(layout: Layout, usual: int) -> list[int]:
    """The same of a layout of exact sizes."""
    tables = [n for phase in layout.phases for task in phase for n in (0, 0, task[2], chunk_of(task[2], task[3]), 0)]
    return relocated([*layout.words, *tables], layout.plain, layout.dynamic, [0] * usual)


def relocated(words: list[int], plain: Sequence[int], dynamic: Sequence[int], io: Sequence[int]) -> list[int]:
    """What native code makes of words when a run begins."""
    for i in range(0, len(plain), 3):
        words[plain[i]] = io[plain[i + 1]] + plain[i + 2]
    for i in range(0, len(dynamic), 3):
        words[dynamic[i]] += io[dynamic[i + 1]] * dynamic[i + 2]
    return words


def _chunk(code: Code, chunk: Chunk) -> str:
    units, grain = map(code.structure, chunk)
    return f"max({units}, 1)" if grain == "1" else f"max(-(-{units} // max({grain}, 1)), 1) * max({grain}, 1)"


def sized(layouts: Sequence[Any], numbers: Numbers, usual: int) -> Sized | None:
    """For a plan that is one native program, if it can serve all sizes; `usual`: its io words at one size."""
    if len(layouts) != 1 or not hasattr(layouts[0], "phases"):
        return None
    layout: Layout = layouts[0]
    if any(x.__class__ is Sym for x in layout.dynamic):
        return None
    made = Sized(layout, numbers, usual)
    return made if len(made.expressions) <= MOST else None
