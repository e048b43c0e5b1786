"""torch.distributed.algorithms.ddp_comm_hooks.default_hooks: hooks on gradients that are sent; they refuse where they are called."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), """
allreduce_hook(*args, **options) !
fp16_compress_hook(*args, **options) !
bf16_compress_hook(*args, **options) !
fp16_compress_wrapper(*args, **options) !
bf16_compress_wrapper(*args, **options) !
""", "")
