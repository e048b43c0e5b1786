"""torch.cuda.amp.autocast_mode: the older names of torch.amp.autocast_mode."""

from __future__ import annotations

from flambeau.cuda.amp import autocast, custom_bwd, custom_fwd

__all__ = ["autocast", "custom_bwd", "custom_fwd"]
