"""torch.distributed._functional_collectives: collectives that return new tensors, with gradients. They are done when they return."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed.group import ProcessGroup, default_group, group_named, group_of_ranks
from flambeau.distributed.nn import functional as _with_gradients
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.distributed.tags import _expand_group as _expand_group
from flambeau.distributed.watchers import one


class AsyncCollectiveTensor:
    """What a collective that is on its way returns; nothing here is."""


def wait_tensor(tensor: Any) -> Any:
    """The tensor: nothing is on its way."""
    return tensor


def _group(given: Any) -> ProcessGroup:
    """The group: itself, its name, the ranks of one that is there, a mesh of one dim, or (mesh, dim). NotImplementedError for others."""
    if given is None:
        return default_group()
    if isinstance(given, str):
        return group_named(given)
    if isinstance(given, ProcessGroup):
        return given
    if hasattr(given, "get_group"):
        return given.get_group()  # type: ignore[no-any-return]
    if isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "get_group"):
        return given[0].get_group(given[1])  # type: ignore[no-any-return]
    if isinstance(given, (list, tuple)) and default_group() and (found := group_of_ranks(given)) is not None:
        return found
    raise NotImplementedError(
        f"torch.distributed functional collectives: the group must be a ProcessGroup, a DeviceMesh, (mesh, dim) or the ranks of a group, got {given!r}"
    )


def _op(name: Any) -> Any:
    return ReduceOp[name.upper()] if isinstance(name, str) else name


def all_reduce(self: Any, reduceOp: str, group: Any, tag: str = "") -> Any:
    """The sum (or what `reduceOp` says) over all ranks. Of a tensor without elements of its own ("meta") one like it."""
    if self.is_meta:
        return flambeau.empty_like(self)
    with one("all_reduce"):
        return _with_gradients.all_reduce(self, _op(reduceOp), _group(group))


def all_gather_tensor(self: Any, gather_dim: int, group: Any, tag: str = "") -> Any:
    """The tensors of all ranks, joined along a dim."""
    if self.is_meta:
        return flambeau.cat([self] * _group(group).size(), gather_dim)
    with one("all_gather_into_tensor"):
        return flambeau.cat(list(_with_gradients.all_gather(self, _group(group))), gather_dim)


def reduce_scatter_tensor(self: Any, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Any:
    """This rank's part, along a dim, of the sum over all ranks."""
    found = _group(group)
    n = found.size()
    if self.shape[scatter_dim] % n:
        raise AssertionError(f"input dimension {scatter_dim} ({self.shape[scatter_dim]}) must be a multiple of group_size {n}")
    parts = list(self.chunk(n, scatter_dim))
    if self.is_meta:
        return flambeau.empty_like(parts[0])
    mean = _op(reduceOp) is ReduceOp.AVG
    with one("reduce_scatter_tensor"):
        total = _with_gradients.reduce_scatter(parts[0], parts, ReduceOp.SUM if mean else _op(reduceOp), found)
    return total / n if mean else total


def all_reduce_coalesced(self: list[Any], reduceOp: str, group: Any, tag: str = "") -> list[Any]:
    """all_reduce of each tensor."""
    with one("all_reduce_coalesced"):
        return [all_reduce(t, reduceOp, group) for t in self]


def all_gather_into_tensor_coalesced(self: list[Any], group: Any, tag: str = "") -> list[Any]:
    """all_gather_tensor of each tensor along dim 0."""
    with one("all_gather_into_tensor_coalesced"):
        return [all_gather_tensor(t, 0, group) for t in self]


def reduce_scatter_tensor_coalesced(inputs: list[Any], reduceOp: str, scatter_dim: list[int], group: Any, tag: str = "") -> list[Any]:
    """reduce_scatter_tensor of each tensor along its dim."""
    with one("reduce_scatter_tensor_coalesced"):
        return [reduce_scatter_tensor(t, reduceOp, dim, group) for t, dim in zip(inputs, scatter_dim, strict=True)]


# All have gradients; PyTorch 2.13 has each under several names.
all_gather_single = all_gather_single_autograd = all_gather_tensor_autograd = all_gather_tensor
reduce_scatter_single = reduce_scatter_single_autograd = reduce_scatter_tensor_autograd = reduce_scatter_tensor
all_gather_single_coalesced, reduce_scatter_single_coalesced = all_gather_into_tensor_coalesced, reduce_scatter_tensor_coalesced


def broadcast(self: Any, src: int, group: Any, tag: str = "") -> Any:
    """The tensor of rank `src`."""
    if self.is_meta:
        return flambeau.empty_like(self)
    with one("broadcast"):
        return _with_gradients.broadcast(self, src, _group(group))


def all_to_all_single(self: Any, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = "") -> Any:
    """The parts along dim 0 that the other ranks have for this one, joined."""
    rows = sum(output_split_sizes) if output_split_sizes else self.shape[0]
    like = self.new_empty((rows, *self.shape[1:]))
    if self.is_meta:
        return like
    with one("all_to_all_single"):
        return _with_gradients.all_to_all_single(like, self, output_split_sizes, input_split_sizes, _group(group))


all_to_all_single_autograd = all_to_all_single


def permute_tensor(self: Any, src_dst: Any, group: Any, tag: str = "") -> Any:
    """The tensor of the rank whose place in `src_dst` is this rank."""
    found = _group(group)
    n, rank = found.size(), found.rank()
    if sorted(src_dst) != list(range(n)):
        raise ValueError(f"permute_tensor: src_dst must name each rank once, got {src_dst}")
    rows = self.shape[0]
    sends = [rows if r == src_dst[rank] else 0 for r in range(n)]
    receives = [rows if src_dst[r] == rank else 0 for r in range(n)]
    return all_to_all_single(self, receives, sends, found)
