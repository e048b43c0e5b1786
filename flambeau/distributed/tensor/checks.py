"""Whether the processes' parts of a DTensor fit together: DTensor.from_local(run_check=True)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau.distributed.collectives import broadcast
from flambeau.distributed.objects import all_gather_object
from flambeau.distributed.tensor.placement_types import Placement, Replicate


def same_everywhere(local: Any, mesh: Any, placements: Sequence[Placement], sizes: bool) -> Any:
    """The local tensor, that of the first process along dims with Replicate. ValueError where dtypes or, if `sizes`, shapes or strides differ."""
    own = {"dtype": local.dtype, "requires_grad": local.requires_grad}
    if sizes:
        own |= {"shape": tuple(local.shape), "stride": tuple(local.stride())}
    for d in range(mesh.ndim):
        found: list[Any] = [None] * mesh.shape[d]
        all_gather_object(found, own, group=mesh.get_group(d))
        if any(f != found[0] for f in found):
            raise ValueError(
                f"Inconsistent tensor metadata (including shape and stride) across ranks: DTensor.from_local: along dim {d} of the mesh the local tensors have "
                f"{found}; give shape= and stride= of the whole for parts of several sizes"
            )
    if any(isinstance(p, Replicate) for p in placements):
        local = local.clone(memory_format=flambeau.contiguous_format)
    for d, p in enumerate(placements):
        if isinstance(p, Replicate):
            broadcast(local.detach(), group=mesh.get_group(d), group_src=0)
    return local
