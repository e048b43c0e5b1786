"""A path by class is made ahead: one look at what came after this place last time, instead of one for each call.

A model remembers the edge that was last taken from it. When a path comes to a model with new sizes, the exact states of all edges that follow are made at
once, as far as their keys can be told from the sizes that are known by then. So the calls that come next are known, and native code takes them.
What is made so is what each call would have made by itself; a guess that goes wrong costs time only. How far it goes is halved where the last guess was not
taken to its end, and doubled where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau.statistics import counters
from flambeau.trace.from_model import NEW, Symbol, Variant, exact_state, tried
from flambeau.trace.state import ALIAS, IN, State

FARTHEST: Final = 4_096  # edges at once
# Given the path's states from some place on: gives that place the second name of an edge that is further on.
Shortcut = Callable[[list[State]], None]


def reached(variant: Variant, parent: State, key: Any, sizes: tuple[int, ...]) -> State:
    """The exact state behind an edge by class that was not made ahead. What comes after it is."""
    state = exact_state(variant, parent, key, sizes)
    came_by(variant, parent, key)
    if variant.model.ahead is not None:  # type: ignore[union-attr]
        _go_on(variant, state)
    return state


def came_by(variant: Variant, parent: State, key: Any) -> None:
    """A path went from `parent` by a variant's edge."""
    model = parent.model
    if model is None or not parent.sizes:
        return
    model.ahead = variant
    if variant.key is None and not any(t is NEW or t.__class__ is Symbol for t in variant.template):
        variant.key = key


def remember(before: State, key: Any, path: Sequence[State], give: Shortcut) -> None:
    """From `before` a second name leads over `path`. `give` does the same at other sizes, where the path is made ahead."""
    model = before.model
    if model is not None and before.sizes:
        if model.shortcuts is None:
            model.shortcuts = {}
        model.shortcuts[key] = [s.model for s in path], give


def _go_on(first: Variant, state: State) -> None:
    last = first.last
    if last is not None:
        came = last.children or last.plans
        first.reach = min(2 * first.reach, FARTHEST) if came else max(first.reach // 2, 1)
    path = [state]
    held: Any = None  # symbols that are what they were (from_model.py)
    sizes = state.sizes
    assert sizes is not None
    model = state.model
    for _ in range(first.reach):
        variant: Variant | None = model.ahead  # type: ignore[union-attr]
        if variant is None:
            break
        key = variant.key
        if key is None or not variant.free:
            ints = variant.sizes_of_key(sizes)
            if ints is None or variant.match is None or variant.match(sizes, ints) is None:
                break
            if key is None:
                key = variant.name(ints) if variant.name is not None else None
                if key is None:
                    break
        following = state.children.get(key)
        if following is None:
            if not variant.verified and (variant.dead or variant.untried is not held):
                if not tried(variant, sizes):
                    break
                held = variant.untried
            following = exact_state(variant, state, key, sizes)
            counters.class_edges += 1
            counters.made_ahead += 1
            kind = key[0]
            if following.native or following.plain or kind in (IN, ALIAS):
                state.next = following
        elif following.model is not variant.model:
            break
        path.append(following)
        state, model = following, following.model
    first.last = state
    for i, state in enumerate(path):
        shortcuts = state.model.shortcuts  # type: ignore[union-attr]
        if shortcuts is not None:
            for name, (models, give) in shortcuts.items():
                # The program may have gone another way from here since.
                if name not in state.children and [s.model for s in path[i + 1 : i + 1 + len(models)]] == models:
                    give(path[i : i + 1 + len(models)])
