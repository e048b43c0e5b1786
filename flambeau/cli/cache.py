"""`flambeau cache`: what is in the cache of compiled code, and emptying it."""

from __future__ import annotations

from flambeau.runtime import object_cache


def show_cache(action: str) -> int:
    """Print the cache's place and size; with "clear", delete its entries."""
    if action == "clear":
        print(f"deleted {object_cache.clear()} entries of {object_cache.directory()}")
        return 0
    for name, value in object_cache.statistics().items():
        print(f"{name:<12} {value}")
    return 0
