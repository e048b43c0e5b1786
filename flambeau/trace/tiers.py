"""Tiers: a path that is new runs in pieces that are known, and is recorded as a whole once it has come again.

Where a call has no edge, recording it costs a plan for the whole path, and that pays only if the path comes back. So the trace ends there (a *cut*), and the
call begins the next one, a *piece*, at a root of its own: there it is known if it was ever made before. A path is recorded as a whole from the first cut
on from which paths have come back at least every other time: twice with the same sizes, or four times with others, as symbols cost more to record (classes.py).
Two pieces that meet often enough become one.

Which path comes back is a guess that costs time if it is wrong, and nothing else: values are the same in pieces and as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from flambeau.statistics import counters
from flambeau.trace.loops import DEPTH, begins_again

if TYPE_CHECKING:
    from flambeau.trace.recorder import Trace
    from flambeau.trace.state import State

PIECES, WHOLE, MIXED = "0", "1", ""
MODE: Final = [os.environ.get("FLAMBEAU_TIER", MIXED)]  # everything in pieces, everything as a whole, or as seems best
SHORT: Final = 8  # calls: the plan of a longer piece costs as much as that of the path, so it must be there
SAME: Final = 1  # how often a path has come back with the same sizes before it is recorded as a whole
OTHERS: Final = 3  # and with others: models and plans over symbols serve what comes after
PAYS: Final = 16  # and where what begins like this path mostly ends as nothing before: a plan costs as much as some twenty visits in pieces
KNOWN: Final = 8  # paths that must have begun like it, before that is said
MEETINGS: Final = 4_000  # of two pieces before they become one: a plan costs as much as that many ends of traces
MOST_CUTS: Final = 1_024  # of a path that is never looked at: then it counts as ended
MOST_PLACES: Final = 100_000  # that are remembered


class Places:
    """How often paths came through a place, by a hash of what leads there, and how often they ended as one before them did."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.passes: dict[int, int] = {}
        self.repeats: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def come_back(self, place: int, first: int) -> bool:
        """Note that a path comes through, which began with the cut at `first`; whether paths from here come back."""
        passes = self.passes[place] = self.passes.get(place, 0) + 1
        repeats = self.repeats.get(place, 0)
        if repeats < self.wanted or 2 * repeats + 1 < passes:
            return False
        begun = self.passes.get(first, 0)
        return repeats >= PAYS or begun < KNOWN or 2 * self.repeats.get(first, 0) + 1 >= begun

    def end(self, places: list[int]) -> None:
        """A path that came through these places has ended after the last one."""
        ends = self.ends[places[-1]] = self.ends.get(places[-1], 0) + 1
        if ends > 1:
            for place in places:
                self.repeats[place] = self.repeats.get(place, 0) + 1
        if len(self.passes) > MOST_PLACES:
            for counts in (self.passes, self.repeats, self.ends):
                counts.clear()


_exact, _any_sizes = Places(SAME), Places(OTHERS)
OPEN: Final[list[Walk]] = []  # walks on a path in pieces, of all threads: a look at a value that is there already ends the path
_met: dict[int, int] = {}  # by the hash of a piece and a call: how often the call came after it


class Walk:
    """Where a trace is on a path in pieces."""

    __slots__ = ("calls", "cuts", "generation", "whole")

    def __init__(self) -> None:
        self.cuts: list[tuple[int, int]] = []  # so far: hashes of what leads to them, with sizes and without
        self.calls: list[Any] = []  # the operations before which they are
        self.generation = -1  # of the trace, if nothing but cuts has ended it since the path began
        self.whole = -1  # the generation that is recorded as a whole

    def end(self) -> None:
        """The path has ended."""
        cuts, self.cuts, self.calls = self.cuts, [], []
        with suppress(ValueError):
            OPEN.remove(self)
        if cuts:  # another thread may have ended it
            _exact.end([exact for exact, _ in cuts])
            _any_sizes.end([any_sizes for _, any_sizes in cuts])


def in_pieces(tr: Trace) -> bool:
    """Whether this trace is a piece."""
    return tr.walk.generation == tr.gen


def may_cut(tr: Trace) -> bool:
    """Whether the trace can end before a call that has no edge: something is pending, and it is not recorded as a whole."""
    if tr.held or MODE[0] == WHOLE or (in_pieces(tr) and not tr.tensors):
        return False
    return MODE[0] == PIECES or tr.walk.whole != tr.gen


def cuts(tr: Trace, op: Any, key: Any, planned: Callable[[], bool]) -> bool:
    """Whether a trace that may be cut is, before a call of `op` that has no edge. `planned()`: whether there is a plan of what is pending."""
    walk, state = tr.walk, tr.state
    if MODE[0] == PIECES:
        return True
    if walk.cuts and (not in_pieces(tr) or len(walk.cuts) == MOST_CUTS or (len(walk.cuts) >= DEPTH and begins_again(reversed(walk.calls), op))):
        walk.end()
    trail = hash((_trail(state), op))
    before, before_any = walk.cuts[-1] if walk.cuts else (0, 0)
    exact, any_sizes = hash((before, id(state), key)), hash((before_any, trail))
    first, first_any = walk.cuts[0] if walk.cuts else (exact, any_sizes)
    back, others_back = _exact.come_back(exact, first), _any_sizes.come_back(any_sizes, first_any)
    if back or others_back or (state.depth > SHORT and not planned()):
        walk.whole = tr.gen
        counters.paths_joined += 1
        return False
    if tr.tensors:
        meetings = _met[trail] = _met.get(trail, 0) + 1
        if meetings >= MEETINGS:
            _met[trail] = 0
            return False
        if len(_met) > MOST_PLACES:
            _met.clear()
    if not walk.cuts:
        OPEN.append(walk)
    walk.calls.append(op)
    walk.cuts.append((exact, any_sizes))
    return True


def _trail(state: State) -> int:
    """A hash of a path's operations, without sizes."""
    found = 0
    for call in state.calls():
        found = hash((found, call.edge[0]))
    return found
