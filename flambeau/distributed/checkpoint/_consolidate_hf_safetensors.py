"""torch.distributed.checkpoint._consolidate_hf_safetensors: a part of reading and writing checkpoints of several processes, which refuses where it is used."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(
    globals(),
    """
consolidate_safetensors_files(*args, **options) !
""",
    "",
)
