"""torch.distributed.nn.functional: collectives with gradients, in a group of one process: copies."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.collectives import ReduceOp
from flambeau.distributed.group import default_group


def broadcast(tensor: Any, src: int, group: Any = None) -> Any:
    """A copy."""
    default_group()
    return tensor.clone()


def gather(tensor: Any, dst: int = 0, group: Any = None) -> tuple[Any, ...]:
    """(a copy,): the tensors of all processes."""
    return all_gather(tensor, group)


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Any:
    """A copy of the first tensor."""
    default_group()
    return tensors[0].clone()


def reduce(tensor: Any, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """A copy."""
    return all_reduce(tensor, op, group)


def reduce_scatter(output: Any, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """A copy of the first tensor."""
    default_group()
    return input_list[0].clone()


def all_gather(tensor: Any, group: Any = None) -> tuple[Any, ...]:
    """(a copy,): the tensors of all processes."""
    default_group()
    return (tensor.clone(),)


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None) -> tuple[Any, ...]:
    """Copies."""
    default_group()
    return tuple(t.clone() for t in input_tensor_list)


def all_to_all_single(output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None) -> Any:
    """A copy."""
    default_group()
    return input.clone()


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """A copy."""
    default_group()
    return tensor.clone()
