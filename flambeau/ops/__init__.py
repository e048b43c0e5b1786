"""What each operation means. `primitives/`: the compiler's vocabulary with shape rules and gradients; the other files:
PyTorch's functions as compositions of them, by family, one record each (see registry.py).

PyTorch's `torch.ops` has this package's name: `torch.ops.aten.add` and what torch.library registers are found through it."""

from __future__ import annotations

from importlib.machinery import PathFinder
from typing import Any

from flambeau.upward import upward as _upward


@_upward
def _namespace(name: str) -> Any:
    """The operators of a library (_ops.py)."""
    raise NotImplementedError


def __getattr__(name: str) -> Any:
    # A file of this package is imported by whoever wants it; every other name is a namespace of operators, as in PyTorch.
    if name.startswith("__") or PathFinder.find_spec(f"{__name__}.{name}", __path__) is not None:
        raise AttributeError(f"module 'torch.ops' has no attribute {name!r}")
    found = globals()[name] = _namespace(name)  # programs of torch.export ask at each call
    return found
