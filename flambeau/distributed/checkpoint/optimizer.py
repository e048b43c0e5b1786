"""torch.distributed.checkpoint.optimizer: a part of reading and writing checkpoints of several processes, which refuses where it is used."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(
    globals(),
    """
load_sharded_optimizer_state_dict(*args, **options) !
""",
    "",
)
