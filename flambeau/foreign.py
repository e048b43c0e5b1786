"""Objects of the installed PyTorch that meet flambeau's: how they are known, and the error that says which import is to blame and what to do.

A program that imports both by mistake (`import flambeau as torch`, then `from torch import nn`) mixes two libraries that know nothing of each
other. PyTorch itself is never imported here: its objects are known by the module of their class.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

_HERE = "flambeau"


def _is_torchs(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == "torch"


_KNOWN: dict[type, type | None] = {}
_MOST_KNOWN = 4096  # classes; they are kept alive


def _of(cls: type) -> type | None:
    """PyTorch's own class among a class and its bases; named tuples of results are nobody's."""
    if cls not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        ours = issubclass(cls, (tuple, BaseException))
        _KNOWN[cls] = None if ours else next((c for c in cls.__mro__ if _is_torchs(c.__module__)), None)
    return _KNOWN[cls]


def installed() -> bool:
    """Whether PyTorch itself has been imported, not flambeau under its name."""
    return sys.modules.get("torch") not in (None, sys.modules[_HERE])


def is_foreign(x: Any) -> bool:
    """Whether an object is one of PyTorch's own: a tensor, a module (of a class derived from its Module, too), a dtype, a device, ..."""
    return installed() and _of(type(x)) is not None


def first(values: Iterable[Any], depth: int = 2) -> Any:
    """The first of PyTorch's objects among values, and in lists, tuples and dicts among them; None if there is none."""
    if not installed():
        return None
    for v in values:
        if type(v) in (list, tuple, dict):
            found = first((*v.keys(), *v.values()) if type(v) is dict else v, depth - 1) if depth else None
            if found is not None:
                return found
        elif _of(type(v)) is not None:
            return v
    return None


def error(x: Any, place: str) -> TypeError:
    """What to raise where one of PyTorch's objects was given to `place` (a function of flambeau's)."""
    theirs = _of(type(x)) or type(x)
    name = f"{theirs.__module__}.{theirs.__qualname__}"
    if hasattr(x, "__dlpack__"):
        advice = "; a tensor's values come over with flambeau.from_dlpack(tensor.detach())"
    elif name in ("torch.dtype", "torch.layout", "torch.memory_format"):
        advice = f"; {x} is flambeau.{str(x).removeprefix('torch.')} here"
    else:
        advice = ""
    return _told(f"{place} got a {name} of the installed PyTorch, whose objects flambeau cannot use", advice)


def called(function: Any) -> TypeError:
    """What to raise where a function (or a module) of PyTorch's was given a flambeau tensor."""
    name = getattr(function, "__name__", None) or type(function).__name__
    return _told(f"{name}() is a function of the installed PyTorch, and it was given a flambeau Tensor, which it cannot use", "")


def _told(what: str, advice: str) -> TypeError:
    return TypeError(
        f"{what}: this program imports from both (an `import torch` or `from torch import nn` beside flambeau); import everything from flambeau "
        f"(`from flambeau import nn`), or leave the imports of torch and start the program with `flambeau run`{advice}."
    )


def is_theirs(function: Any) -> bool:
    """Whether a function is one of PyTorch's own."""
    owners = (function, getattr(function, "__self__", None), getattr(function, "__objclass__", None))
    modules = [getattr(o, "__module__", None) for o in owners] + [getattr(type(o), "__module__", None) for o in owners]
    return installed() and any(_is_torchs(m) for m in modules)


def refuse(values: Iterable[Any], place: str) -> None:
    """Raise TypeError if one of PyTorch's objects is among the values that `place` was given."""
    found = first(values)
    if found is not None:
        raise error(found, place)
