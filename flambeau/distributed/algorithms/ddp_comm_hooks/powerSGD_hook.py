"""torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook: hooks on gradients that are sent; they refuse where they are called."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), """
powerSGD_hook(*args, **options) !
batched_powerSGD_hook(*args, **options) !
""", "PowerSGDState")
