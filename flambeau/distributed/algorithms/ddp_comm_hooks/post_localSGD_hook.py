"""torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook: hooks on gradients that are sent; they refuse where they are called."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), """
post_localSGD_hook(*args, **options) !
""", "PostLocalSGDState")
