"""torch._C._cpu: what the processor can do; the names are those of torch.cpu."""

from __future__ import annotations

from flambeau.cpu import _init_amx as _init_amx
from flambeau.cpu import get_capabilities as _get_cpu_capability

__all__ = ["_get_cpu_capability", "_init_amx"]
