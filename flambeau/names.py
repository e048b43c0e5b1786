"""What PyTorch has and flambeau has not: the AttributeError that says so and names what is near.

`data/torch_names.txt` lists the public names of PyTorch 2.13 by namespace (made with dir()).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from pathlib import Path


@cache
def torch_names() -> dict[str, frozenset[str]]:
    """PyTorch's public names: {"torch.nn": {"Linear", ...}, ...}."""
    found: dict[str, frozenset[str]] = {}
    space = ""
    for line in (Path(__file__).parent / "data" / "torch_names.txt").read_text().splitlines():
        if line.startswith("["):
            space = line.strip("[]")
        else:
            found[space] = frozenset(line.split())
    return found


def missing(space: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for `space.name` ("torch.nn", "Foo"); `known` are the names that exist there."""
    near = difflib.get_close_matches(name, [k for k in known if not k.startswith("_")], 3, 0.6)
    hint = f" Near it there {'is' if len(near) == 1 else 'are'}: {', '.join(near)}." if near else ""
    if name in torch_names().get(space, ()):
        return AttributeError(f"PyTorch has {space}.{name}, flambeau has it not yet.{hint}", name=name)
    return AttributeError(f"{space} has no attribute {name!r}, neither in PyTorch nor in flambeau.{hint}", name=name)
