"""Tiers: a path that is new runs in pieces that are known, and is recorded as a whole once it has come again.

Where a call has no edge, recording it costs a plan for the whole path, and that pays only if the path comes back. So the trace ends there (a *cut*), and the
call begins the next one, a *piece*, at a root of its own: there it is known if it was ever made before. A path is recorded as a whole from the first cut
on from which paths have come back at least every other time: twice with the same sizes, or four times with others, as symbols cost more to record (classes.py).
A plan must pay: a short path without gradients that makes little memory, at equal or changing sizes, and a small one among many that begin alike, first
comes back `PAYS` times.
Two pieces that meet often enough become one.

A loop is cut every few rounds (loops.py). What is left of it after its last cut is another path for each number of rounds. Where those numbers do not come
back, a round is a piece, and any number of rounds is made of one piece (`loop_in_pieces`).

Which path comes back is a guess that costs time if it is wrong, and nothing else: values are the same in pieces and as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from flambeau.statistics import counters

if TYPE_CHECKING:
    from flambeau.trace.recorder import Trace
    from flambeau.trace.state import State

PIECES, WHOLE, MIXED = "0", "1", ""
MODE: Final = [os.environ.get("FLAMBEAU_TIER", MIXED)]  # everything in pieces, everything as a whole, or as seems best
SHORT: Final = 8  # calls: the plan of a longer piece costs as much as that of the path, so it must be there
MUCH: Final = 1 << 20  # bytes that the pieces of a path make: less of them cost what their calls cost, and a plan of the path gains nothing else
LONG, HEAVY = 1, 2  # weights of paths: of more calls than SHORT or with gradients, and of so many bytes
FEW: Final = 4  # paths from one place, up to which each is worth a plan when it comes back
SAME: Final = 1  # how often a path has come back with the same sizes before it is recorded as a whole
OTHERS: Final = 3  # and with others: models and plans over symbols serve what comes after
PAYS: Final = 16  # and where what begins like this path mostly ends as nothing before: a plan costs as much as some twenty visits in pieces
KNOWN: Final = 8  # paths that must have begun like it, before that is said
MEETINGS: Final = 4_000  # of two pieces before they become one: a plan costs as much as that many ends of traces
MOST_CUTS: Final = 1_024  # of a path that is never looked at: then it counts as ended
MOST_PLACES: Final = 100_000  # that are remembered
PAID: Final = 576  # pieces of a loop: by then they have cost as much as a plan of its rounds, some 30 ms
ROUND: Final = 64  # pieces of a round of such a loop, at most
LOOKS: Final = 64  # pieces between two looks whether they are a loop's
NEXT: Final = -2  # the generation of the trace that begins next
FIRST: Final = 4  # more than a disappointment takes: the first time as a whole is recorded
SURE: Final = 8  # paths in a row that came back count at most for running a loop as a whole
DOUBT: Final = 64  # and so many that did not against it


class Places:
    """How often paths came through a place, by a hash of what leads there, and how often they ended as one before them did."""

    def __init__(self, wanted: int, *, any_sizes: bool) -> None:
        self.wanted, self.any_sizes = wanted, any_sizes
        self.passes: dict[int, int] = {}
        self.repeats: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.runs: dict[int, tuple[int, int]] = {}  # how the last path from here ended, and how many ended so one after the other
        self.weights: dict[int, int] = {}  # by first places: of the heaviest path that has begun there

    def come_back(self, place: int, first: int) -> bool:
        """Note that a path comes through, which began with the cut at `first`; whether paths from here come back."""
        passes = self.passes[place] = self.passes.get(place, 0) + 1
        repeats = self.repeats.get(place, 0)
        if repeats < self.wanted or 2 * repeats + 1 < passes:
            return False
        begun, begun_before = self.passes.get(first, 0), self.repeats.get(first, 0)
        weight = self.weights.get(first, 0)
        if weight < HEAVY and (begun - begun_before > FEW or not (weight or self.any_sizes)):
            # So often has each path from here come back, or one time after time.
            pays = repeats >= PAYS * (passes - 1 - repeats) or self.runs.get(place, (0, 0))[1] > PAYS
        elif not weight:
            pays = repeats >= PAYS
        else:
            pays = repeats >= PAYS or begun < KNOWN or 2 * begun_before + 1 >= begun
        if pays:
            self.passes[place] = passes - 1  # it does not end in pieces
        return pays

    def end(self, places: list[int], weight: int) -> None:
        """A path that came through these places has ended after the last one."""
        if weight:
            self.weights[places[0]] = max(weight, self.weights.get(places[0], 0))
        last = places[-1]
        ends = self.ends[last] = self.ends.get(last, 0) + 1
        if ends > 1:
            for place in places:
                self.repeats[place] = self.repeats.get(place, 0) + 1
                before, count = self.runs.get(place, (last, 0))
                self.runs[place] = last, count + 1 if before == last else 1
        if len(self.passes) > MOST_PLACES:
            for counts in (self.passes, self.repeats, self.ends, self.runs, self.weights):
                counts.clear()


_exact, _any_sizes = Places(SAME, any_sizes=False), Places(OTHERS, any_sizes=True)


def _come_back(place: tuple[int, int], first: tuple[int, int]) -> tuple[bool, bool]:
    """Note that a path comes through a place, and whether paths from there come back: with the same sizes, with any."""
    back, others_back = _exact.come_back(place[0], first[0]), _any_sizes.come_back(place[1], first[1])
    if others_back and not back and _exact.passes[place[0]] > 1 and not _exact.weights.get(first[0], 0):
        others_back = False  # at these sizes its pieces are known
    return back, others_back


class Loop:
    """Whether the numbers of rounds of a loop come back, so that what is left after its last cut is worth a plan.

    Paths in pieces tell by their ends. Where the loop runs as a whole, a path that is left where nothing is known has not come back. Each such disappointment
    asks for twice as many paths that come back before the next try, so what wrong guesses cost is a part of what was spent anyway.
    """

    __slots__ = ("asked", "balance", "met")

    def __init__(self) -> None:
        self.met = False
        self.balance = 0  # paths that have come back less those that have not; the loop runs as a whole while it is over 0
        self.asked = 4  # how many must come back after the next disappointment

    def ended(self, repeated: bool) -> None:
        """A path in pieces through the loop has ended: as one before it did, or otherwise."""
        if repeated:
            self.balance += 1
            if self.balance == 1:
                self.balance = FIRST
        elif self.met:
            self.balance = max(self.balance - 1, -DOUBT)
        self.met = True

    def runs_as_a_whole(self) -> bool:
        """Whether the next rounds do; if so it is taken as one that comes back, until `disappointed`."""
        if self.balance <= 0:
            return False
        self.balance = min(self.balance + 1, SURE)
        return True

    def disappointed(self) -> None:
        """What runs as a whole has come to a call that has no edge."""
        self.balance -= 3
        if self.balance <= 0:
            self.balance = -self.asked
            self.asked = min(2 * self.asked, DOUBT)


_loops: dict[int, Loop] = {}  # by a hash of the operations that lead into it
OPEN: Final[list[Walk]] = []  # walks on a path in pieces, of all threads: a look at a value that is there already ends the path
_begun: set[int] = set()  # places of kept calls from which on paths have been recorded as a whole
_met: dict[int, int] = {}  # by the hash of a piece and a call: how often the call came after it


class Walk:
    """Where a trace is on a path in pieces."""

    __slots__ = ("calls", "cuts", "generation", "gradients", "loop", "nbytes", "rounds", "whole")

    def __init__(self) -> None:
        self.cuts: list[tuple[int, int]] = []  # so far: hashes of what leads to them, with sizes and without
        self.calls: list[Any] = []  # the operations before which they are
        self.nbytes = 0  # of the pieces' results so far
        self.gradients = False  # whether a piece had leaves or earlier segments behind it: a step of training comes back more often than a look
        self.generation = -1  # of the trace, if nothing but cuts has ended it since the path began
        self.whole = -1  # the generation that is recorded as a whole
        self.loop: Loop | None = None  # the last one that the path has come through
        self.rounds = -1  # the generation that began at a cut of a loop which runs as a whole

    def end(self) -> None:
        """The path has ended."""
        cuts, self.cuts, self.calls = self.cuts, [], []
        nbytes, gradients, self.nbytes, self.gradients = self.nbytes, self.gradients, 0, False
        loop, self.loop = self.loop, None
        with suppress(ValueError):
            OPEN.remove(self)
        if cuts:  # another thread may have ended it
            weight = HEAVY if nbytes > MUCH else LONG if gradients or len(cuts) > SHORT else 0
            _exact.end([exact for exact, _ in cuts], weight)
            _any_sizes.end([any_sizes for _, any_sizes in cuts], weight)
            if loop is not None:
                loop.ended(_any_sizes.ends.get(cuts[-1][1], 0) > 1)

    def has_gone_round(self) -> bool:
        """Whether the last cuts, as many as a loop's plan costs, are rounds of a loop. It is looked for at some cuts only."""
        count = len(self.calls)
        if count < PAID or count % LOOKS:
            return False
        calls = self.calls[-PAID:]
        return any(calls[period:] == calls[:-period] for period in range(1, ROUND + 1))

    def come_to(self, state: State, key: Any, trail: int) -> tuple[tuple[int, int], bool, bool]:
        """The place of a call of the path, and whether paths come back from there: with the same sizes, with any."""
        before, before_any = self.cuts[-1] if self.cuts else (0, 0)
        place = hash((before, id(state), key)), hash((before_any, trail))
        return place, *_come_back(place, self.cuts[0] if self.cuts else place)

    def cut(self, op: Any, place: tuple[int, int]) -> None:
        """The path is cut there, before a call of `op`."""
        if not self.cuts:
            OPEN.append(self)
        self.calls.append(op)
        self.cuts.append(place)


def ends_path(tr: Trace) -> None:
    """A value is looked at that is there already. As a whole the path would end here."""
    if tr.walk.cuts:
        tr.walk.end()
        if tr.state.parent is None and tr.state is not tr.root and not tr.held:
            tr.reset()  # nothing is pending: the next path begins where whole paths do


HERE: Final = 1
ELSEWHERE: Final = 2


def comes_to(tr: Trace, mark: int, op: Any) -> int:
    """Note that a path in pieces has come to a kept call (kept.py) of this name, at which nothing is pending. 0: it runs as a piece; HERE: it is recorded at
    this root, as paths come back from here; ELSEWHERE: it is another trace's now."""
    if MODE[0] == PIECES:
        return 0
    walk = tr.walk
    cuts = walk.cuts
    if not cuts or walk.generation != tr.gen:  # the path has ended
        tr.reset()
        return ELSEWHERE
    count = len(cuts)
    if count >= MOST_CUTS:
        walk.end()
        before, before_any, count = 0, 0, 0
    else:
        before, before_any = cuts[-1]
        if walk.has_gone_round():
            walk.end()
            walk.rounds = NEXT
            counters.paths_joined += 1
            tr.reset()
            tr.begin_piece()
            return ELSEWHERE
    place = hash((before, mark)), hash((before_any, id(op)))
    if place[0] in _begun:  # known as a whole: not counted, as where all edges are known
        return HERE
    back, others_back = _come_back(place, cuts[0] if count else place)
    if back or others_back:
        if len(_begun) > MOST_PLACES:
            _begun.clear()
        _begun.add(place[0])
        walk.whole = tr.gen
        if back:
            walk.rounds, walk.loop = tr.gen, None
        counters.paths_joined += 1
        return HERE
    walk.cut(op, place)
    counters.pieces += 1
    return 0


def in_pieces(tr: Trace) -> bool:
    """Whether this trace is a piece."""
    return tr.walk.generation == tr.gen


def is_a_piece(tr: Trace) -> bool:
    """Whether this trace is a piece, and not the beginning of a path that is recorded as a whole from here, on a path that stays in pieces."""
    return (MODE[0] == PIECES or tr.walk.whole != tr.gen) and stays_in_pieces(tr)


def stays_in_pieces(tr: Trace) -> bool:
    """Whether paths that begin like this one have run in pieces so often that more will: one that comes back is recorded as a whole sooner."""
    cuts = tr.walk.cuts
    return MODE[0] == PIECES or (bool(cuts) and _any_sizes.passes.get(cuts[0][1], 0) >= KNOWN)


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
    if walk.rounds == tr.gen:  # what is left of a loop that runs as a whole
        if walk.loop is not None:
            walk.loop.disappointed()
            walk.loop = None  # once a path
        walk.whole = tr.gen
        return False
    if walk.cuts and (not in_pieces(tr) or len(walk.cuts) == MOST_CUTS):
        walk.end()
    if walk.has_gone_round():
        walk.end()
        walk.rounds = NEXT
        counters.paths_joined += 1
        return True
    trail = hash((_trail(state), op))
    place, back, others_back = walk.come_to(state, key, trail)
    if back or others_back or (state.depth > SHORT and not planned()):
        walk.whole = tr.gen
        if back:
            walk.rounds, walk.loop = tr.gen, None
        counters.paths_joined += 1
        return False
    if tr.tensors:
        meetings = _met[trail] = _met.get(trail, 0) + 1
        if meetings >= MEETINGS:
            _met[trail] = 0
            return False
        if len(_met) > MOST_PLACES:
            _met.clear()
    walk.nbytes += state.pending_bytes
    walk.gradients = walk.gradients or bool(tr.boundaries)
    walk.cut(op, place)
    return True


def begins_piece(tr: Trace) -> bool:
    """Whether the trace that begins after a cut is a piece, and not the first rounds of a loop as a whole, at the root of whole paths."""
    walk = tr.walk
    if walk.rounds == NEXT:
        walk.rounds = walk.whole = tr.gen
        return False
    walk.generation = tr.gen
    return True


def loop_in_pieces(tr: Trace, state: State, gen: int, op: Any) -> bool:
    """After a trace has ended at `state` because a call of `op` begins another round of a loop: whether each round from here is a piece."""
    if MODE[0] != MIXED:
        return False
    walk = tr.walk
    if walk.rounds == tr.gen and walk.loop is not None:
        return False
    if walk.cuts and walk.generation != gen:
        walk.end()
    trail = hash((_trail(state), op))
    loop = _loops.get(trail)
    if loop is None:
        if len(_loops) > MOST_PLACES:
            _loops.clear()
        loop = _loops[trail] = Loop()
    walk.loop = loop
    if walk.rounds == tr.gen:  # the path that leads here has come back, or has gone round for long
        loop.balance = max(loop.balance, FIRST)
        return False
    if loop.runs_as_a_whole():
        walk.rounds = tr.gen
        return False
    place, _, _ = walk.come_to(state, op, trail)
    walk.cut(op, place)
    return True


def _trail(state: State) -> int:
    """A hash of a path's operations, without sizes."""
    found = 0
    for call in state.calls():
        found = hash((found, call.edge[0]))
    return found
