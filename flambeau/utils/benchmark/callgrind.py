"""Counts of instructions, as Callgrind (Valgrind) gives them. Timer does not take any here; the classes hold and compare such counts."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from flambeau.utils.benchmark.measurement import TaskSpec


class FunctionCount(NamedTuple):
    """Instructions of one function."""

    count: int  # type: ignore[assignment]
    function: str


@dataclasses.dataclass(repr=False, eq=False, frozen=True)
class FunctionCounts:
    """Instructions of several functions, most first."""

    _data: tuple[FunctionCount, ...]
    inclusive: bool
    truncate_rows: bool = True
    _linewidth: int | None = None

    def __iter__(self) -> Iterator[FunctionCount]:
        yield from self._data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, item: Any) -> Any:
        data = self._data[item]
        return FunctionCounts(data, self.inclusive, truncate_rows=False) if isinstance(data, tuple) and not isinstance(data, FunctionCount) else data

    def __repr__(self) -> str:
        shown = self._data if len(self._data) <= 18 or not self.truncate_rows else (*self._data[:9], *self._data[-9:])
        return "\n".join([f"  {c.count:>12}  {c.function}" for c in shown] + ["", f"Total: {self.sum()}"])

    def __add__(self, other: FunctionCounts) -> FunctionCounts:
        return self._merge(other, lambda c: c)

    def __sub__(self, other: FunctionCounts) -> FunctionCounts:
        return self._merge(other, lambda c: -c)

    def __mul__(self, other: float) -> FunctionCounts:
        return self._from_dict({fn: int(c * other) for c, fn in self._data}, self.inclusive)

    def transform(self, map_fn: Callable[[str], str]) -> FunctionCounts:
        """Counts under other names; equal ones are added."""
        counts: dict[str, int] = defaultdict(int)
        for c, fn in self._data:
            counts[map_fn(fn)] += c
        return self._from_dict(counts, self.inclusive)

    def filter(self, filter_fn: Callable[[str], bool]) -> FunctionCounts:
        """The counts of functions that `filter_fn` wants."""
        return FunctionCounts(tuple(i for i in self if filter_fn(i.function)), self.inclusive)

    def sum(self) -> int:
        """All instructions."""
        return sum(c for c, _ in self)

    def denoise(self) -> FunctionCounts:
        """Without the interpreter's dictionaries, whose counts vary from run to run."""
        return self.filter(lambda fn: "dictobject.c:lookdict_unicode" not in fn)

    def _merge(self, second: FunctionCounts, merge_fn: Callable[[int], int]) -> FunctionCounts:
        if self.inclusive != second.inclusive:
            raise AssertionError("Cannot merge inclusive and exclusive counts.")
        counts: dict[str, int] = defaultdict(int)
        for c, fn in self:
            counts[fn] += c
        for c, fn in second:
            counts[fn] += merge_fn(c)
        return self._from_dict(counts, self.inclusive)

    @staticmethod
    def _from_dict(counts: dict[str, int], inclusive: bool) -> FunctionCounts:
        ordered = sorted((FunctionCount(c, fn) for fn, c in counts.items() if c), reverse=True)
        return FunctionCounts(tuple(ordered), inclusive)


@dataclasses.dataclass(repr=False, eq=False, frozen=True)
class CallgrindStats:
    """Counts of a statement and of the loop around it."""

    task_spec: TaskSpec
    number_per_run: int
    built_with_debug_symbols: bool
    baseline_inclusive_stats: FunctionCounts
    baseline_exclusive_stats: FunctionCounts
    stmt_inclusive_stats: FunctionCounts
    stmt_exclusive_stats: FunctionCounts
    stmt_callgrind_out: str | None

    def stats(self, inclusive: bool = False) -> FunctionCounts:
        """The statement's counts."""
        return self.stmt_inclusive_stats if inclusive else self.stmt_exclusive_stats

    def counts(self, *, denoise: bool = False) -> int:
        """All instructions of the statement."""
        stats = self.stmt_exclusive_stats
        return (stats.denoise() if denoise else stats).sum()

    def delta(self, other: CallgrindStats, inclusive: bool = False) -> FunctionCounts:
        """The difference to another's counts."""
        return self.stats(inclusive) - other.stats(inclusive)

    def as_standardized(self) -> CallgrindStats:
        """Names without folders."""

        def strip(stats: FunctionCounts) -> FunctionCounts:
            return stats.transform(lambda fn: fn.rsplit("/", 1)[-1])

        return CallgrindStats(
            self.task_spec, self.number_per_run, self.built_with_debug_symbols, strip(self.baseline_inclusive_stats),
            strip(self.baseline_exclusive_stats), strip(self.stmt_inclusive_stats), strip(self.stmt_exclusive_stats), None,
        )  # fmt: skip


class CopyIfCallgrind:
    """A value among a Timer's globals that a process of its own would need a copy of."""

    def __init__(self, value: Any, *, setup: str | None = None) -> None:
        self._value = value
        self._setup = setup

    @property
    def value(self) -> Any:
        """The value."""
        return self._value

    @property
    def setup(self) -> str | None:
        """What must run before it can be read."""
        return self._setup

    @staticmethod
    def unwrap_all(globals: dict[str, Any]) -> dict[str, Any]:
        """Globals with the values themselves."""
        return {k: v.value if isinstance(v, CopyIfCallgrind) else v for k, v in globals.items()}
