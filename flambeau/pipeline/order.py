"""The order of steps: each after what it needs, else as they are written; circles are errors."""

from __future__ import annotations

from collections.abc import Mapping


def ordered(needs: Mapping[str, list[str]]) -> list[str]:
    """The names so that each comes after those it needs. ValueError that shows the circle if there is one."""
    done: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in path:
            circle = [*path[path.index(name) :], name]
            raise ValueError(f"steps need each other in a circle: {' -> '.join(circle)} (each needs the next one)")
        path.append(name)
        for other in needs[name]:
            visit(other)
        path.pop()
        done.append(name)

    for name in needs:
        visit(name)
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
