"""torch.distributed.tensor._collective_utils: collectives along one dim of a mesh, and parts made equally long for them."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.collectives import broadcast, scatter
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor.placement_types import Shard
from flambeau.distributed.tensor.transitions import exchanged
from flambeau.distributed.work import Work


def pad_tensor(tensor: Any, pad_dim: int, pad_size: int) -> Any:
    """The tensor with so many zeros behind it along a dim."""
    if not pad_size:
        return tensor
    import flambeau

    shape = list(tensor.shape)
    shape[pad_dim] = pad_size
    return flambeau.cat([tensor, tensor.new_zeros(shape)], dim=pad_dim)


def unpad_tensor(tensor: Any, pad_dim: int, pad_size: int) -> Any:
    """The tensor without the last `pad_size` elements along a dim."""
    return tensor.narrow(pad_dim, 0, tensor.shape[pad_dim] - pad_size) if pad_size else tensor


def exchanged_dims(t: Any, gather_dim: int, shard_dim: int, group: Any) -> Any:
    """A tensor whose parts of one size lie along one dim in a group's processes, cut along another."""
    n = group.size()
    sizes = [Shard.local_shard_size_and_offset(t.shape[shard_dim], n, r)[0] for r in range(n)]
    if t.is_meta:
        shape = list(t.shape)
        shape[gather_dim], shape[shard_dim] = shape[gather_dim] * n, sizes[group.rank()]
        return t.new_empty(shape)
    return exchanged(t, gather_dim, shard_dim, [t.shape[gather_dim]] * n, sizes, group)


def shard_dim_alltoall(input: Any, gather_dim: int, shard_dim: int, mesh: DeviceMesh, mesh_dim: int) -> Any:
    """`exchanged_dims` along a dim of a mesh."""
    return exchanged_dims(input, gather_dim, shard_dim, mesh.get_group(mesh_dim))


def mesh_scatter(
    output: Any, scatter_list: list[Any], mesh: DeviceMesh, mesh_dim: int = 0, async_op: bool = False, *, group_src: int = 0
) -> Work | None:  # fmt: skip
    """Along a dim of the mesh, the process in place `group_src` hands out its list; None on the device meta."""
    if output.is_meta:
        return None
    group = mesh.get_group(mesh_dim)
    return scatter(output, scatter_list if group.rank() == group_src else None, group=group, async_op=async_op, group_src=group_src)


def mesh_broadcast(tensor: Any, mesh: DeviceMesh, mesh_dim: int = 0, async_op: bool = False, *, group_src: int = 0) -> Work | None:
    """Along a dim of the mesh, the tensor becomes that of the process in place `group_src`; None on the device meta."""
    return None if tensor.is_meta else broadcast(tensor, group=mesh.get_group(mesh_dim), async_op=async_op, group_src=group_src)
