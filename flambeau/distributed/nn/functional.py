"""torch.distributed.nn.functional: collectives with gradients, which are collectives, too."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.autograd.function import Function
from flambeau.distributed import collectives as c
from flambeau.distributed.calls import root_of
from flambeau.distributed.group import member
from flambeau.distributed.reduce_op import ReduceOp


def _group(given: Any) -> Any:
    found = member(given)
    if found is None:
        raise ValueError("torch.distributed.nn.functional: this process is not in the group")
    return found


def _copy(tensor: Any) -> Any:
    """What a collective may write to; it takes contiguous tensors only."""
    return tensor.clone(memory_format=flambeau.contiguous_format)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Any) -> Any:
        ctx.op, ctx.group = op, group
        result = _copy(tensor)
        c.all_reduce(result, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, gradient)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, tensor: Any) -> Any:
        ctx.src, ctx.group = src, group
        result = _copy(tensor)
        c.broadcast(result, src, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        total = _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.group, gradient)
        is_source = ctx.group.ranks[ctx.group.rank()] == ctx.src
        return None, None, total if is_source else flambeau.zeros_like(total)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: Any, group: Any, tensor: Any) -> Any:
        ctx.dst, ctx.group = dst, group
        result = _copy(tensor)
        c.reduce(result, dst, op, group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, gradient)


class _AllToAll(Function):
    """Each rank's r-th tensor goes to rank r; the shapes of what comes are those of `like`."""

    @staticmethod
    def forward(ctx: Any, group: Any, shapes: Any, *tensors: Any) -> Any:
        ctx.group, ctx.shapes = group, tuple(tuple(t.shape) for t in tensors)
        results = [flambeau.empty(shape, dtype=tensors[0].dtype) for shape in shapes]
        c.all_to_all(results, [t.contiguous() for t in tensors], group)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, None, *_AllToAll.apply(ctx.group, ctx.shapes, *gradients))


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """The sum over all ranks, as a new tensor."""
    return _AllReduce.apply(op, _group(group), tensor)


def broadcast(tensor: Any, src: int, group: Any = None) -> Any:
    """The tensor of rank `src`, as a new tensor."""
    return _Broadcast.apply(src, _group(group), tensor)


def reduce(tensor: Any, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """On rank `dst` the sum over all ranks; elsewhere a copy."""
    return _Reduce.apply(dst, op, _group(group), tensor)


def all_gather(tensor: Any, group: Any = None) -> tuple[Any, ...]:
    """The tensors of all ranks, which have one shape."""
    found = _group(group)
    return tuple(_AllToAll.apply(found, (tuple(tensor.shape),) * found.size(), *[tensor] * found.size()))


def gather(tensor: Any, dst: int = 0, group: Any = None) -> tuple[Any, ...]:
    """On rank `dst` the tensors of all ranks; zeros elsewhere."""
    found = _group(group)
    shape, n = tuple(tensor.shape), found.size()
    root = root_of(found, dst, None, "dst")
    empty = (0,) * max(1, len(shape))
    sends = [tensor if r == root else tensor.new_zeros(empty) for r in range(n)]
    got = _AllToAll.apply(found, tuple(shape if found.rank() == root else empty for _ in range(n)), *sends)
    return tuple(got) if found.rank() == root else tuple(flambeau.zeros_like(tensor) for _ in range(n))


def scatter(tensors: Any, src: int = 0, group: Any = None) -> Any:
    """The tensor in this rank's place of the list of rank `src`; all lists have tensors of these shapes."""
    found = _group(group)
    root = root_of(found, src, None, "src")
    shape = tuple(tensors[found.rank()].shape)
    empty = (0,) * max(1, len(shape))
    sends = list(tensors) if found.rank() == root else [t.new_zeros((0,) * max(1, t.ndim)) for t in tensors]
    return _AllToAll.apply(found, tuple(shape if r == root else empty for r in range(found.size())), *sends)[root]


def reduce_scatter(output: Any, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """The sum over all ranks of the tensors in this rank's place of their lists."""
    if op is not ReduceOp.SUM:
        raise NotImplementedError(f"torch.distributed.nn.functional.reduce_scatter: gradients are there for ReduceOp.SUM only, got {op}")
    found = _group(group)
    parts = _AllToAll.apply(found, (tuple(output.shape),) * found.size(), *input_list)
    return sum(parts[1:], parts[0])


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None) -> tuple[Any, ...]:
    """What the other ranks have in this rank's place of their lists, with the shapes of the output list."""
    return tuple(_AllToAll.apply(_group(group), tuple(tuple(t.shape) for t in output_tensor_list), *input_tensor_list))


def all_to_all_single(output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None) -> Any:
    """The parts along dim 0 that the other ranks have for this one, joined; `output` gives the shape."""
    found = _group(group)
    n = found.size()
    sends = input.split(list(input_split_sizes) if input_split_sizes else input.shape[0] // n)
    sizes = list(output_split_sizes) if output_split_sizes else [output.shape[0] // n] * n
    return flambeau.cat(list(_AllToAll.apply(found, tuple((size, *output.shape[1:]) for size in sizes), *sends)))
