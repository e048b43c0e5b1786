"""torch.distributed.fsdp.sharded_grad_scaler: a GradScaler whose processes leave out the same steps."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.amp import GradScaler
from flambeau.distributed.collectives import all_reduce
from flambeau.distributed.group import get_world_size, is_initialized
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.tensor import Tensor


class ShardedGradScaler(GradScaler):
    """torch.amp.GradScaler for parameters that lie in parts: a step is left out by all processes of the group if a gradient of one is not finite."""

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, backoff_factor: float = 0.5, growth_factor: float = 2.0, growth_interval: int = 2000,
        enabled: bool = True, process_group: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.process_group = process_group

    def _check(self, optimizer: Any, inverse: Tensor, allow_fp16: bool, write: bool) -> dict[Any, Tensor]:
        """As for one process; a process that has no gradients takes part, too."""
        own = super()._check(optimizer, inverse, allow_fp16, write)
        if not is_initialized() or get_world_size(self.process_group) == 1:
            return own
        found = next(iter(own.values()), flambeau.zeros(())).clone()
        all_reduce(found, ReduceOp.MAX, self.process_group)
        return {found.device: found}
