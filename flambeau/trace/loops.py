"""Loops in what is recorded: where a path is cut so that any number of rounds is made of the same pieces.

A matter of the path alone, so it is cut at the same places whatever is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from flambeau.trace.state import ASSIGN, BACKWARD, SEGMENT, State

if TYPE_CHECKING:
    from flambeau.trace.recorder import Trace

DEPTH: Final = 16  # calls, from which on a loop is cut
LONGEST: Final = 8  # calls of one round
ROUNDS: Final = 8  # how often it has gone round by then
FAR: Final = LONGEST * ROUNDS  # calls of a loop of one call, or of writes: whole lists of results and of parameters stay in one piece
LAYERS: Final = 32  # the same of a loop without a backward pass, whose rounds have more calls
LOOK: Final = 128  # calls, from which on such loops are looked for
BLOCK: Final = 128  # calls of a piece of such a loop, at least
FURTHEST: Final = 4096  # calls that are looked at


def begins_again(before: Iterable[Any], op: Any, least: int = 0) -> int:
    """The calls of a round, if a call of `op` begins another one of a short loop of `least` calls so far, or 0. `before`: the operations so far, the last
    one first."""
    operations: list[Any] = []
    for operation in islice(before, FAR):
        operations.append(operation)
        if len(operations) == LONGEST and op not in operations:
            return 0
    for period in range(1, LONGEST + 1):
        calls = FAR if period == 1 else max(ROUNDS * period, least)
        if len(operations) >= calls and operations[period - 1] is op and operations[: calls - period] == operations[period:calls]:
            return period if period == 1 or len(set(map(id, operations[:period]))) > 1 else 0
    return 0


def ends_round(tr: Trace, op: Any, least: int = DEPTH) -> bool:
    """End a trace if a call of `op` begins another round of a short loop: what is known of so many rounds serves any number of them."""
    state = tr.state
    if tr.held or state.depth < least or not begins_again((call.edge[0] for call in state.calls()), op, least):
        return False
    end_of_rounds(tr)
    return True


def end_of_rounds(tr: Trace) -> None:
    """End a trace after some rounds of a loop."""
    from flambeau.trace.evaluate import flush

    walk, gen = tr.walk, tr.gen
    flush(tr, "loop")
    if walk.rounds == gen:  # of a loop that runs as a whole (tiers.py), and so do the next rounds
        walk.rounds = tr.gen


def long_loop(state: State, known: bool) -> tuple[int, int]:
    """(the calls of a round, the calls until the loop is best cut) of the loop at the end of a path, or (0, 0).

    It is one if it has gone round often enough: eight times with a backward pass in each round; without one 32 times, as they may be the layers of a
    network, which is one plan; twice if it is `known` as a loop, which has gone round in pieces. It is best cut behind the longest run of writes: behind an
    optimizer's step nothing is waited for.
    """
    operations = _operations(state)
    for period in range(1, len(operations) // (2 if known else ROUNDS) + 1):
        if operations[0] is operations[period]:
            rounds = 2 if known else ROUNDS if any(op is BACKWARD or op is SEGMENT for op in operations[:period]) else LAYERS
            last = (rounds - 1) * period
            if len(operations) >= last + period and operations[:last] == operations[period : last + period]:
                calls = [op for op in operations[:period] if op is not BACKWARD and op is not SEGMENT]
                return len(calls), _until_written(calls)
    return 0, 0


def _operations(end: State) -> list[Any]:
    """The calls of a path and the stages of its backward passes, the last one first."""
    found: list[Any] = []
    state = end
    while (parent := state.parent) is not None and len(found) < FURTHEST:
        op = state.edge[0]
        if state.depth > parent.depth or op is BACKWARD or op is SEGMENT:
            found.append(op)
        state = parent
    return found


def _until_written(last: list[Any]) -> int:
    """The calls from the end of a round until its longest run of writes has just ended. `last`: its operations, the last one first."""
    best, longest = 0, 0
    for ahead in range(len(last)):
        before = [*last[len(last) - ahead :], *last[: len(last) - ahead]]  # after so many more calls, as they come again
        run = next((i for i, op in enumerate(before) if op is not ASSIGN), 0)
        if run > longest and before[-1] is not ASSIGN:
            best, longest = ahead, run
    return best
