"""torch.distributed.checkpoint.state_dict_saver: a part of reading and writing checkpoints of several processes, which refuses where it is used."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), """
save(*args, **options) !
save_state_dict(*args, **options) !
async_save(*args, **options) !
_save_state_dict(*args, **options) !
""", "")
