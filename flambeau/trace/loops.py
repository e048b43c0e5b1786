"""Loops in what is recorded: where a path is cut so that any number of rounds is made of the same pieces.

A matter of the path alone, so it is cut at the same places whatever is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from flambeau.trace.recorder import Trace
    from flambeau.trace.state import State

DEPTH: Final = 16  # calls, from which on a loop is cut
LONGEST: Final = 8  # calls of one round
ROUNDS: Final = 8  # how often it has gone round by then
FAR: Final = LONGEST * ROUNDS  # calls of a loop of one call, or of writes: whole lists of results and of parameters stay in one piece
PERIOD_DEPTHS: Final = (512, 1024, 2048)  # where a loop that never observes is looked for


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
    from flambeau.trace.evaluate import flush

    walk, gen = tr.walk, tr.gen
    flush(tr, "loop")
    if walk.rounds == gen:  # of a loop that runs as a whole (tiers.py), and so do the next rounds
        walk.rounds = tr.gen
    return True


def period_of(state: State) -> int:
    """The smallest period of the operations at the end of the path that has repeated at least eight times, or 0."""
    operations = [(call.edge[0], len(call.nodes)) for call in islice(state.calls(), PERIOD_DEPTHS[-1])]
    for period in range(1, len(operations) // ROUNDS):
        if all(operations[i] == operations[i + period] for i in range((ROUNDS - 1) * period)):
            return period
    return 0
