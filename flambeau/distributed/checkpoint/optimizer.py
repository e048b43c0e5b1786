"""torch.distributed.checkpoint.optimizer: the state of an optimizer from a checkpoint, in parts, without an optimizer that has one."""

from __future__ import annotations

from math import prod
from typing import Any

import flambeau
from flambeau.distributed.checkpoint import metadata as kinds
from flambeau.distributed.checkpoint._traverse import set_element
from flambeau.distributed.checkpoint.state_dict_loader import load_state_dict
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.group import get_world_size
from flambeau.distributed.tensor import Shard, zeros
from flambeau.distributed.tensor.api import DTensor


def load_sharded_optimizer_state_dict(model_state_dict: Any, optimizer_key: str, storage_reader: Any, planner: Any = None) -> dict[str, Any]:
    """{`optimizer_key`: the state that was saved under it}, for FSDP's `optim_state_dict_to_load`. All processes call it.

    A tensor of more than one element is a DTensor: cut as the parameter of its name in `model_state_dict` is, if it is as large, else in rows over all
    processes (PyTorch: ShardedTensors in rows). ValueError where the checkpoint has nothing under the key.
    """
    metadata = storage_reader.read_metadata()
    paths = metadata.planner_data or {}
    rows = init_device_mesh("cpu", (get_world_size(),))
    state: dict[str, Any] = {}
    for name, entry in metadata.state_dict_metadata.items():
        path = paths.get(name, (name,))
        if path[0] != optimizer_key:
            continue
        if isinstance(entry, kinds.BytesStorageMetadata):
            state[name] = "<bytes_io>"
        elif prod(entry.size) == 1:
            state[name] = flambeau.empty(tuple(entry.size), dtype=entry.properties.dtype)
        else:
            parameter = model_state_dict.get(path[2]) if len(path) > 2 else None
            mesh: Any = rows
            placements: list[Any] = [Shard(0)]
            if isinstance(parameter, DTensor) and tuple(parameter.shape) == tuple(entry.size):
                mesh, placements = parameter.device_mesh, list(parameter.placements)
            state[name] = zeros(tuple(entry.size), dtype=entry.properties.dtype, device_mesh=mesh, placements=placements)
    if not state:
        raise ValueError(
            f"load_sharded_optimizer_state_dict: the checkpoint has nothing under {optimizer_key!r}; it has {sorted({str(p[0]) for p in paths.values()})}"
        )
    load_state_dict(state, storage_reader, planner=planner)
    nested: dict[str, Any] = {}
    for name, value in state.items():
        set_element(nested, paths.get(name, (name,)), value)
    return nested


__all__ = ["load_sharded_optimizer_state_dict"]
