"""torch.distributed.checkpoint.hf_storage: a part of reading and writing checkpoints of several processes, which refuses where it is used."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(
    globals(),
    """
""",
    "HuggingFaceStorageReader HuggingFaceStorageWriter",
)
