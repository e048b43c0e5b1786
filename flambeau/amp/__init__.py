"""torch.amp: mixed precision. autocast_mode (the state) -> lists (what it does to each operation); grad_scaler (float16's range)."""

from __future__ import annotations

from flambeau.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from flambeau.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

from flambeau.ops.guard import guard as _guard

_guard("amp", globals())

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.amp", globals())
