"""torch.cuda.amp.common: whether there is a device for it."""

from __future__ import annotations

from flambeau.cuda.amp import amp_definitely_not_available

__all__ = ["amp_definitely_not_available"]
