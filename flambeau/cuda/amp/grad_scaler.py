"""torch.cuda.amp.grad_scaler: the older name of torch.amp.GradScaler."""

from __future__ import annotations

from flambeau.cuda.amp import GradScaler

__all__ = ["GradScaler"]
