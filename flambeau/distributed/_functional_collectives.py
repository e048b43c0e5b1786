"""torch.distributed._functional_collectives: collectives that return new tensors, in a group of one process: copies with gradients."""

from __future__ import annotations

from typing import Any


class AsyncCollectiveTensor:
    """What a collective that is on its way returns; nothing here is."""


def wait_tensor(tensor: Any) -> Any:
    """The tensor: nothing is on its way."""
    return tensor


def all_reduce(self: Any, reduceOp: str, group: Any, tag: str = "") -> Any:
    """A copy: the sum over one process."""
    return self.clone()


def all_gather_tensor(self: Any, gather_dim: int, group: Any, tag: str = "") -> Any:
    """A copy: the tensors of one process, joined."""
    return self.clone()


def reduce_scatter_tensor(self: Any, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Any:
    """A copy."""
    return self.clone()


def broadcast(self: Any, src: int, group: Any, tag: str = "") -> Any:
    """A copy."""
    return self.clone()


def all_to_all_single(self: Any, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = "") -> Any:
    """A copy."""
    return self.clone()


all_to_all_single_autograd = all_to_all_single


def permute_tensor(self: Any, src_dst: Any, group: Any, tag: str = "") -> Any:
    """A copy: the one process sends to itself."""
    return self.clone()
