"""torch.distributed.checkpoint.format_utils: a part of reading and writing checkpoints of several processes, which refuses where it is used."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(
    globals(),
    """
_load_state_dict(*args, **options) !
dcp_to_torch_save(*args, **options) !
torch_save_to_dcp(*args, **options) !
""",
    "_EmptyStateDictLoadPlanner",
)
