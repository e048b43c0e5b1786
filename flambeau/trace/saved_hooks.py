"""The hooks of saved tensors that are on (torch.autograd.graph.saved_tensors_hooks)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

mutable: list[bool] = [False]  # whether what was kept may be written over until then (torch.autograd.graph.allow_mutation_on_saved_tensors)
saved: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = []  # (pack, unpack) of what is kept for gradients, innermost last
