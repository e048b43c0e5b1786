"""What a process could write of a state, who of several writes what all have, and the metadata of all of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import flambeau
from flambeau.distributed._shard.sharded_tensor import ShardedTensor
from flambeau.distributed.checkpoint import metadata as kinds
from flambeau.distributed.tensor._utils import compute_local_shape_and_global_offset
from flambeau.distributed.tensor.api import DTensor, inner
from flambeau.distributed.tensor.placement_types import Partial
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size


@dataclass
class Item:
    """One thing that a process could write."""

    name: str
    offset: tuple[int, ...] | None  # None: no tensor
    shape: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    dtype: str = ""
    nbytes: int = 0


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor, or parts of one."""
    return isinstance(value, (Tensor, ShardedTensor))


def parts(name: str, t: Any) -> list[tuple[tuple[int, ...], tuple[int, ...], Any]]:
    """(shape, offset, local tensor) of each part that this process has."""
    if isinstance(t, ShardedTensor):
        return [(tuple(s.metadata.shard_sizes), tuple(s.metadata.shard_offsets), s.tensor.detach()) for s in t.local_shards()]
    return [part(name, t)]


def local_at(name: str, t: Any, offset: Any) -> Any:
    """The local tensor of the part that begins there (None: of the only one). ValueError if this process has none."""
    found = [local for _, start, local in parts(name, t) if offset is None or start == tuple(offset)]
    if len(found) != 1:
        starts = [start for _, start, _ in parts(name, t)]
        raise ValueError(f"Could not find shard at {None if offset is None else tuple(offset)} of {name}: this process has parts at {starts}")
    return found[0]


def part(name: str, t: Any) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """(shape, offset, local tensor) of this process's part of a tensor."""
    if not isinstance(t, DTensor):
        return tuple(t.shape), (0,) * t.ndim, t.detach()
    if any(isinstance(p, Partial) for p in t.placements):
        raise ValueError(f"Any checkpointing related operations are not supported for DTensor with partial placements: {name} has {t.placements}")
    shape, offset = compute_local_shape_and_global_offset(t._layout.shape, t._layout.mesh, t._layout.placements)
    return shape, offset, inner(t).detach()


def plan_of(flat: dict[str, Any]) -> list[Item]:
    items = []
    for name, value in flat.items():
        if not is_tensor(value):
            items.append(Item(name, None))
            continue
        for shape, offset, local in parts(name, value):
            if prod(shape) or not prod(value.shape):
                items.append(Item(name, offset, shape, tuple(value.shape), value.dtype.name, prod(shape) * local.element_size()))
    return items


def owners_of(plans: list[list[Item]]) -> dict[tuple[str, Any], int]:
    """Who writes what: what several have is written by the one of them that has the least to write."""
    holders: dict[tuple[str, Any], list[int]] = {}
    sizes: dict[tuple[str, Any], int] = {}
    for rank, plan in enumerate(plans):
        for item in plan:
            holders.setdefault((item.name, item.offset), []).append(rank)
            sizes[item.name, item.offset] = item.nbytes
    load = [0] * len(plans)
    owners = {}
    for key in sorted(holders, key=lambda k: (len(holders[k]) > 1, -sizes[k], k[0], k[1] or ())):
        owners[key] = min(holders[key], key=lambda r: (load[r], r))
        load[owners[key]] += sizes[key]
    return owners


def metadata_of(plans: list[list[Item]], paths: dict[str, tuple[Any, ...]]) -> kinds.Metadata:
    found: dict[str, Any] = {}
    for plan in plans:
        for item in plan:
            if item.offset is None:
                found.setdefault(item.name, kinds.BytesStorageMetadata())
                continue
            entry = found.setdefault(item.name, kinds.TensorStorageMetadata(kinds.TensorProperties(getattr(flambeau, item.dtype)), Size(item.whole), []))
            if not any(tuple(chunk.offsets) == item.offset for chunk in entry.chunks):
                entry.chunks.append(kinds.ChunkStorageMetadata(Size(item.offset), Size(item.shape)))
    return kinds.Metadata(found, paths)


def states_of(state_dict: Any) -> dict[str, Any]:
    return {key: value.state_dict() if hasattr(value, "state_dict") and hasattr(value, "load_state_dict") else value for key, value in state_dict.items()}
