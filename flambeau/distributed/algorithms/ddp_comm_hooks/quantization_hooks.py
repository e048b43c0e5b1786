"""torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks: hooks on gradients that are sent; they refuse where they are called."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), """
quantization_pertensor_hook(*args, **options) !
quantization_perchannel_hook(*args, **options) !
""", "")
