"""What each operation means. `primitives/`: the compiler's vocabulary with shape rules and gradients; the other files:
PyTorch's functions as compositions of them, by family, one record each (see registry.py).

PyTorch's `torch.ops` has this package's name: `torch.ops.aten.add` and what torch.library registers are found through it."""

from __future__ import annotations

import sys
from typing import Any


def __getattr__(name: str) -> Any:
    library = sys.modules.get("flambeau.library")
    if name in ("aten", "prims", "load_library") or (library is not None and any(n.startswith(f"{name}::") for n in library._registered)):
        from flambeau._ops import ops

        return getattr(ops, name)
    raise AttributeError(f"module 'torch.ops' has no attribute {name!r}: flambeau has no operators of that namespace")
