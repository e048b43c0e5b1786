"""torch.distributed.fsdp._common_utils: names of parameters inside of wrappers, and without them."""

from __future__ import annotations

from typing import Any, Final

FSDP_WRAPPED_MODULE: Final = "_fsdp_wrapped_module"
FSDP_PREFIX: Final = FSDP_WRAPPED_MODULE + "."
_CHECKPOINT_PREFIX: Final = "_checkpoint_wrapped_module."
_WRAPPED: Final = (FSDP_WRAPPED_MODULE, "_checkpoint_wrapped_module", "_orig_mod")


def clean_tensor_name(tensor_name: str) -> str:
    """A parameter's or buffer's name as it was before FullyShardedDataParallel and checkpoint_wrapper."""
    return tensor_name.replace(FSDP_PREFIX, "").replace(_CHECKPOINT_PREFIX, "")


def name_without_wrappers(model: Any, name: str) -> str:
    """A name of `model.state_dict()` or `named_parameters()` without what DistributedDataParallel and other wrappers put into it."""
    from flambeau.nn.parallel import DistributedDataParallel

    at: Any = model
    kept = []
    for part in name.split("."):
        if part not in _WRAPPED and not (part == "module" and isinstance(at, DistributedDataParallel)):
            kept.append(part)
        at = getattr(at, part, None)
    return ".".join(kept)
