"""functorch.einops: rearrange."""

from __future__ import annotations

from flambeau.func.rearrange import rearrange as rearrange

__all__ = ["rearrange"]
