"""torch.distributed.algorithms.ddp_comm_hooks: what DistributedDataParallel does to gradients on their way; they have none in one process."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), "register_ddp_comm_hook(comm_hook_type, model, state=None) !", "DDPCommHookType")
