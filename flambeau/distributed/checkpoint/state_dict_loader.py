"""torch.distributed.checkpoint.state_dict_loader: a part of reading and writing checkpoints of several processes, which refuses where it is used."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), """
load(*args, **options) !
load_state_dict(*args, **options) !
_load_state_dict(*args, **options) !
""", "")
