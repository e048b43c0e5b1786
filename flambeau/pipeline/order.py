"""The order of steps: each after what it needs, else as they are written; circles are errors."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush


def ordered(needs: Mapping[str, list[str]]) -> list[str]:
    """The names so that each comes after those it needs: of those that can come next, the one that is written first. ValueError that shows
    the circle if there is one."""
    sorter = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except CycleError as error:
        circle: list[str] = error.args[1][::-1]  # graphlib names what is needed first
        raise ValueError(f"steps need each other in a circle: {' -> '.join(circle)} (each needs the next one)") from None
    written = {name: i for i, name in enumerate(needs)}
    done: list[str] = []
    ready: list[tuple[int, str]] = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heappush(ready, (written[name], name))
        done.append(heappop(ready)[1])
        sorter.done(done[-1])
    return done


def reached(needs: Mapping[str, list[str]], name: str) -> set[str]:
    """A name and all that it needs, directly or not."""
    found: set[str] = set()
    open_names = [name]
    while open_names:
        current = open_names.pop()
        if current not in found:
            found.add(current)
            open_names += needs[current]
    return found
