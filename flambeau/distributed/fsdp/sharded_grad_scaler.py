"""torch.distributed.fsdp.sharded_grad_scaler: a GradScaler that agrees with other processes; of one process it is GradScaler."""

from __future__ import annotations

from typing import Any

from flambeau.amp import GradScaler
from flambeau.distributed.several import refuse


class ShardedGradScaler(GradScaler):
    """torch.amp.GradScaler: there is nobody to agree with."""

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, backoff_factor: float = 0.5, growth_factor: float = 2.0, growth_interval: int = 2000,
        enabled: bool = True, process_group: Any = None,
    ) -> None:  # fmt: skip
        from flambeau.distributed.group import get_world_size, is_initialized

        if is_initialized() and get_world_size(process_group) > 1:
            refuse("ShardedGradScaler of several ranks")
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
