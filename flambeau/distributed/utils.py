"""torch.distributed.utils: what wrappers of modules share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def _sync_module_states(
    module: Any, process_group: Any, broadcast_bucket_size: int, src: int, params_and_buffers_to_ignore: Iterable[str] = (), broadcast_buffers: bool = True
) -> None:
    """Parameters and buffers become those of rank `src`."""
    from flambeau.distributed.reducer import send_all

    ignored = set(params_and_buffers_to_ignore)
    tensors = [p.detach() for name, p in module.named_parameters() if name not in ignored]
    if broadcast_buffers:
        tensors += [b.detach() for name, b in module.named_buffers() if name not in ignored]
    send_all(tensors, src, process_group)


def _verify_param_shape_across_processes(process_group: Any, tensors: Any, logger: Any = None) -> None:
    """DistBackendError unless all ranks have parameters of these shapes."""
    from flambeau.distributed.reducer import same_everywhere

    same_everywhere(list(tensors), process_group)
