"""torch.distributed.tensor.experimental._attention: context parallelism: one long sequence over several ranks, attention around the ring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import flambeau
from flambeau.distributed import collectives as c
from flambeau.distributed.tensor.experimental._ring import ring_attention


class _RotateMethod(Enum):
    """How keys and values come to the other ranks."""

    ALL_TO_ALL = auto()
    ALL_GATHER = auto()


@dataclass
class _ContextParallelOptions:
    convert_to_f32: bool = True
    enable_load_balance: bool = True
    rotate_method: _RotateMethod = _RotateMethod.ALL_GATHER


_cp_options = _ContextParallelOptions()


class _HeadTailLoadBalancer:
    """Rank r has the r-th block from ahead and the r-th from behind of a causal sequence: each has as much to do."""

    def __init__(self, seq_length: int, world_size: int, device: Any = "cpu") -> None:
        if seq_length % (2 * world_size):
            raise AssertionError(f"the sequence length {seq_length} must be a multiple of 2 * {world_size} ranks")
        self.seq_length, self.world_size, self.device = seq_length, world_size, device

    def _generate_indices(self, restore: bool = False) -> Any:
        blocks = flambeau.arange(self.seq_length).view(2 * self.world_size, -1)
        order = [place for r in range(self.world_size) for place in (r, 2 * self.world_size - 1 - r)]
        indices = blocks[flambeau.tensor(order)].view(1, -1)
        return flambeau.argsort(indices, dim=-1) if restore else indices


def _default_balancer(length: int, size: int) -> _HeadTailLoadBalancer | None:
    return _HeadTailLoadBalancer(length, size) if _cp_options.enable_load_balance and length % (2 * size) == 0 else None


def set_rotate_method(rotate_method: str) -> None:
    """How keys and values come to the other ranks: "allgather" (all at once), or "alltoall" (around the ring: two parts at a time in memory)."""
    methods = {"allgather": _RotateMethod.ALL_GATHER, "alltoall": _RotateMethod.ALL_TO_ALL}
    if rotate_method not in methods:
        raise NotImplementedError(f"Context Parallel does not support using {rotate_method} for kv shards rotation")
    _cp_options.rotate_method = methods[rotate_method]


def _group(mesh: Any) -> Any:
    if mesh.ndim != 1:
        raise ValueError(f"context parallelism needs a mesh of one dim, got {mesh}; take one of its dims by name")
    return mesh.get_group()


def _part(buffer: Any, dim: int, group: Any, balancer: Any) -> Any:
    """This rank's part of a whole sequence."""
    length, size = buffer.shape[dim], group.size()
    if length % size:
        raise ValueError(f"context parallelism: dim {dim} of a buffer of shape {tuple(buffer.shape)} must be a multiple of the {size} ranks")
    if balancer is not None:
        buffer = buffer.index_select(dim, balancer._generate_indices()[0])
    return buffer.narrow(dim, group.rank() * (length // size), length // size).clone()


def _context_parallel_shard(mesh: Any, buffers: Sequence[Any], seq_dims: Sequence[int], load_balancer: Any = None) -> list[Any]:
    """The rank's part of each buffer along its sequence, in the order of the load balancer."""
    if len(buffers) != len(seq_dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    group = _group(mesh)
    return [_part(b, dim, group, load_balancer) for b, dim in zip(buffers, seq_dims, strict=True)]


@contextmanager
def context_parallel(
    mesh: Any, *, buffers: list[Any] | None = None, buffer_seq_dims: list[int] | None = None, no_restore_buffers: set[Any] | None = None
) -> Iterator[None]:
    """A block in which each rank of a mesh of one dim has a part of a sequence: `buffers` hold the rank's part along `buffer_seq_dims`, in place, and
    scaled_dot_product_attention of parts along dim -2 is that of the whole sequence.

    Behind the block the buffers are whole again, but for those in `no_restore_buffers`. Outputs are put together by `context_parallel_unshard`.
    """
    from flambeau.nn.functional import attention

    buffers, dims, kept = buffers or [], buffer_seq_dims or [], no_restore_buffers or set()
    if len(buffers) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    if not all(any(b is buffer for b in buffers) for buffer in kept):
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    group = _group(mesh)
    # Without buffers nothing says how long the sequence is: who has cut it has balanced it as the options say.
    balanced = _cp_options.enable_load_balance and (not buffers or _default_balancer(buffers[0].shape[dims[0]], group.size()) is not None)
    before, wholes = attention.INSTEAD, [None if any(b is k for k in kept) else b.detach().clone() for b in buffers]
    with flambeau.no_grad():
        parts = [_part(b, d, group, _default_balancer(b.shape[d], group.size()) if balanced else None) for b, d in zip(buffers, dims, strict=True)]
        for buffer, part in zip(buffers, parts, strict=True):
            buffer.resize_(part.shape).copy_(part)
    attention.INSTEAD = ring_attention(group, balanced, _cp_options.rotate_method is _RotateMethod.ALL_GATHER)
    try:
        yield
    finally:
        attention.INSTEAD = before
        with flambeau.no_grad():
            for buffer, whole in zip(buffers, wholes, strict=True):
                if whole is not None:
                    buffer.resize_(whole.shape).copy_(whole)


def context_parallel_unshard(mesh: Any, buffers: list[Any], seq_dims: list[int], load_balancer: Any = None) -> list[Any]:
    """The whole of what is spread along a sequence, in its order."""
    group, found = _group(mesh), []
    with flambeau.no_grad():
        for b, dim in zip(buffers, seq_dims, strict=True):
            parts = [flambeau.empty_like(b, memory_format=flambeau.contiguous_format) for _ in range(group.size())]
            c.all_gather(parts, b.detach().contiguous(), group)
            whole = flambeau.cat(parts, dim)
            balancer = load_balancer or _default_balancer(whole.shape[dim], group.size())
            found.append(whole if balancer is None else whole.index_select(dim, balancer._generate_indices(restore=True)[0]))
    return found
