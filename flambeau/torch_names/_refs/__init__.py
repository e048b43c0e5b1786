"""torch._refs: PyTorch's functions as they are written in Python, by the names of its public functions: here they are those functions."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau._refs import _conversions as _conversions
from flambeau._refs import fft as fft
from flambeau._refs import linalg as linalg
from flambeau._refs import nn as nn
from flambeau._refs import special as special


def __getattr__(name: str) -> Any:
    found = None if name.startswith("__") else getattr(flambeau, name, None) or getattr(flambeau.Tensor, name, None)
    if not callable(found):
        raise AttributeError(f"module 'torch._refs' has no attribute '{name}': there is no public function of this name")
    return found
