"""Bounded memory: the plans that have not run for longest are forgotten, with the states of the tries that only they need.

A plan and its path take about 1 KB for each value and node of their graph (measured: 0.7 KB for a small network's training step of 918,
0.9 KB for a GPT's of 6,885), so a program that meets a new length at every step would fill the memory. A plan that is wanted again is
made again, from code that is there already.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from flambeau.statistics import counters
from flambeau.trace.state import State
from flambeau.trace.traces import TRACES, roots

BYTES: Final = 1024  # of a value or a node
SHARE: Final = 1 / 8  # of the memory that the process may use
_KEPT: Final = 3 / 4  # of the limit, once it is passed

_held = 0


@cache
def limit() -> int:
    """How many values and nodes all plans may have together."""
    from flambeau.runtime.resources import physical_memory

    return int(physical_memory() * SHARE) // BYTES


def account(size: int) -> None:
    """A plan with so many values and nodes is there now, and in its state. With it, there may be too many."""
    global _held
    _held += size
    if _held > limit():
        _held = keep(int(limit() * _KEPT))


def keep(most: int) -> int:
    """Forget plans, those that ran longest ago first, until the others have at most `most` values and nodes. Returns how many they have."""
    every = states()
    _forget_models(every)
    found = [(plan.last, plan.size, state, alive) for state in every for alive, plan in list(state.plans.items())]
    found.sort(key=lambda plan: plan[0], reverse=True)
    total = 0
    wanted = [state for trace in list(TRACES.values()) for state in (trace.state, trace.standing())]  # what is being recorded now
    for _, size, state, alive in found:
        if total + size <= most:
            total += size
            wanted.append(state)
        else:
            most = total
            del state.plans[alive]
            counters.plans_forgotten += 1
    _prune(every, wanted)
    return total


def _forget_models(every: set[State]) -> None:
    """What is known of paths by class (classes.py) is learned again. A model and its variants refer to each other, so all are taken apart."""
    pending = [state for state in every if state.patterns is not None]
    pending += [state.model for state in every if state.model is not None and state.model.patterns is not None]
    while pending:
        state = pending.pop()
        patterns, state.patterns, state.ahead, state.shortcuts, state.sample = state.patterns, None, None, None, None
        if state.model is None and state.sizes is None and state not in every:
            state.plans.clear()
        pending += [v.model for variants in (patterns or {}).values() for v in variants if v.model is not None and v.model.patterns is not None]


def states() -> set[State]:
    """All states of all tries. Several edges may lead to one."""
    pending = roots()
    found: set[State] = set()
    while pending:
        state = pending.pop()
        if state not in found:
            found.add(state)
            pending.extend(list(state.children.values()))
    return found


def _prune(every: set[State], wanted: list[State]) -> None:
    """Take from the tries what leads to none of these states."""
    leading: set[State] = set()
    for end in wanted:
        state: State | None = end
        while state is not None and state not in leading:
            leading.add(state)
            state = state.parent
    for root in roots():
        learned = root.immediate
        if learned is None:
            continue
        for key, made in list(learned.items()):
            if made.forgotten(leading):
                del learned[key]
        learned.forget_classes()  # it is learned again, as the models are
    for state in every - leading:  # reference counts free them if nothing is a cycle: the garbage collector does not see them
        state.children.clear()
        state.plans.clear()
        state.next = state.writes = state.call = None
    for state in every & leading:
        for edge, child in list(state.children.items()):
            if child not in leading:
                del state.children[edge]
        if state.next is not None and state.next not in leading:
            state.next = None
        if state.writes is not None and state.writes[4][-1][0] not in leading:
            state.writes = None
        if state.call is not None and state.call.end is not None and state.call.end not in leading:
            state.call = None
