"""From one placement to another along one dim of a mesh, with gradients.

A gradient lies as its tensor does, but for parts of a sum, of which each process has the whole gradient. So each step has another as its
gradient, and where a tensor that every process has is used with others' parts, gradients are added up: `vary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau.autograd.function import Function
from flambeau.distributed import collectives as c
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.distributed.tensor._utils import order_of_cuts
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from flambeau.distributed.tensor.spec import Spec
from flambeau.distributed.watchers import one


def _dense(t: Any) -> Any:
    return t.detach().contiguous()


def _part(t: Any, dim: int, sizes: Sequence[int], rank: int) -> Any:
    return t.narrow(dim, sum(sizes[:rank]), sizes[rank])


def _resized(t: Any, dim: int, size: int) -> tuple[int, ...]:
    return tuple([size if d == dim else n for d, n in enumerate(t.shape)])


def gathered(t: Any, dim: int, sizes: Sequence[int], group: Any) -> Any:
    """The parts of all processes, joined."""
    t = _dense(t)
    if dim == 0 and len(set(sizes)) == 1:
        whole = flambeau.empty(_resized(t, 0, sum(sizes)), dtype=t.dtype)
        with one("all_gather_into_tensor"):
            c.all_gather_into_tensor(whole, t, group)
        return whole
    parts = [flambeau.empty(_resized(t, dim, n), dtype=t.dtype) for n in sizes]
    with one("all_gather_into_tensor"):
        c.all_gather(parts, t, group)
    return flambeau.cat(parts, dim)


def scattered_sum(t: Any, dim: int, sizes: Sequence[int], group: Any, op: Any = ReduceOp.SUM) -> Any:
    """This process's part of the sum."""
    t = t.detach()
    parts = [_part(t, dim, sizes, r).contiguous() for r in range(len(sizes))]
    total = flambeau.empty(parts[group.rank()].shape, dtype=t.dtype)
    with one("reduce_scatter_tensor"):
        c.reduce_scatter(total, parts, op, group)
    return total


def _reduced(t: Any, op: Any, group: Any) -> Any:
    total = t.detach().clone(memory_format=flambeau.contiguous_format)
    with one("all_reduce"):
        c.all_reduce(total, op, group)
    return total


def exchanged(t: Any, source: int, target: int, from_sizes: Sequence[int], to_sizes: Sequence[int], group: Any) -> Any:
    """This process's part along another dim, of a tensor that is cut along one."""
    rank = group.rank()
    sends = [_part(t.detach(), target, to_sizes, r).contiguous() for r in range(len(to_sizes))]
    shape = _resized(t, target, to_sizes[rank])
    parts = [flambeau.empty([n if d == source else m for d, m in enumerate(shape)], dtype=t.dtype) for n in from_sizes]
    with one("shard_dim_alltoall", "_dtensor"):
        c.all_to_all(parts, sends, group)
    return flambeau.cat(parts, source)


class _Gather(Function):
    """Shard -> Replicate."""

    @staticmethod
    def forward(ctx: Any, t: Any, dim: int, sizes: Any, group: Any) -> Any:
        ctx.given = dim, sizes, group
        return gathered(t, dim, sizes, group)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Slice.apply(gradient, *ctx.given), None, None, None


class _Slice(Function):
    """Replicate -> Shard."""

    @staticmethod
    def forward(ctx: Any, t: Any, dim: int, sizes: Any, group: Any) -> Any:
        ctx.given = dim, sizes, group
        return _part(t, dim, sizes, group.rank()).clone(memory_format=flambeau.contiguous_format)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Gather.apply(gradient, *ctx.given), None, None, None


class _Sum(Function):
    """Partial -> Replicate."""

    @staticmethod
    def forward(ctx: Any, t: Any, group: Any) -> Any:
        return _reduced(t, ReduceOp.SUM, group)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


class _Vary(Function):
    """What every process has, for use with parts that differ: gradients are added up."""

    @staticmethod
    def forward(ctx: Any, t: Any, group: Any) -> Any:
        ctx.group = group
        return t.view_as(t)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Sum.apply(gradient, ctx.group), None


class _Extreme(Function):
    """Partial("max") or ("min") -> Replicate: the gradient goes to the elements that are the extreme."""

    @staticmethod
    def forward(ctx: Any, t: Any, op: Any, group: Any) -> Any:
        total = _reduced(t, op, group)
        share = (t == total).to(t.dtype)
        ctx.save_for_backward(share / _reduced(share, ReduceOp.SUM, group))
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.saved_tensors[0], None, None


class _SumScatter(Function):
    """Partial -> Shard."""

    @staticmethod
    def forward(ctx: Any, t: Any, dim: int, sizes: Any, group: Any) -> Any:
        ctx.given = dim, sizes, group
        return scattered_sum(t, dim, sizes, group)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Gather.apply(gradient, *ctx.given), None, None, None


class _First(Function):
    """Replicate -> Partial: the first process's, zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, t: Any, group: Any) -> Any:
        return t.clone() if group.rank() == 0 else flambeau.zeros_like(t)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, None


class _Exchange(Function):
    """Shard(source) -> Shard(target)."""

    @staticmethod
    def forward(ctx: Any, t: Any, source: int, target: int, from_sizes: Any, to_sizes: Any, group: Any) -> Any:
        ctx.given = target, source, to_sizes, from_sizes, group
        return exchanged(t, source, target, from_sizes, to_sizes, group)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Exchange.apply(gradient, *ctx.given), None, None, None, None, None


class _GradientFrom(Function):
    """The tensor itself; its gradient comes in placements of its own."""

    @staticmethod
    def forward(ctx: Any, t: Any, spec: Spec, wanted: Spec) -> Any:
        ctx.given = spec, wanted
        return t.view_as(t)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        spec, wanted = ctx.given
        return redistribute(gradient, spec, wanted.placements), None, None


def gradient_from(t: Any, spec: Spec, placements: Sequence[Placement]) -> Any:
    """A local tensor whose gradient will come in these placements."""
    return _GradientFrom.apply(t, spec.placed(placements), spec.gradient())


class _SameMemory(Function):
    """The tensor itself, which may be written to where it is a leaf, too: gradients are those of what was written."""

    @staticmethod
    def forward(ctx: Any, t: Any) -> Any:
        return t.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def same_memory(t: Any) -> Any:
    """A tensor in the memory of a leaf, but no leaf and no view of one."""
    return _SameMemory.apply(t)


class _GradientBeside(Function):
    """A tensor that was made of another by redistribution; its gradient goes to that one at once."""

    @staticmethod
    def forward(ctx: Any, source: Any, made: Any, spec: Spec, given: Spec) -> Any:
        ctx.given = spec, given
        return made.view_as(made)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        spec, given = ctx.given
        return redistribute(gradient, given, spec.gradient().placements), None, None, None


def gradient_beside(source: Any, made: Any, spec: Spec, given: Spec) -> Any:
    """The local tensor that redistribution has made of a source which lies as `spec` says; its gradient will come as `given` says."""
    return _GradientBeside.apply(source, made.detach(), spec, given)


def vary(t: Any, spec: Spec, mesh_dims: Sequence[int]) -> Any:
    """A local tensor that is used with others' parts along dims of the mesh."""
    if t.requires_grad and flambeau.is_grad_enabled():
        for d in mesh_dims:
            if spec.mesh.shape[d] > 1:
                t = _Vary.apply(t, spec.mesh.get_group(d))
    return t


def _step(t: Any, spec: Spec, d: int, to: Placement) -> Any:
    """One dim of the mesh."""
    have = spec.placements[d]
    group = spec.mesh.get_group(d)
    if have == to:
        return t
    if isinstance(have, Partial):
        if have.reduce_op == "avg":
            return _step(t / group.size(), spec.placed_along(d, Partial()), d, to)
        if have.reduce_op != "sum":
            whole = _Extreme.apply(t, ReduceOp[{"max": "MAX", "min": "MIN"}[have.reduce_op]], group)
        elif isinstance(to, Shard):
            return _SumScatter.apply(t, to.dim, spec.sizes_along(d, to.dim), group)
        else:
            whole = _Sum.apply(t, group)
        return _step(whole, spec.placed_along(d, Replicate()), d, to)
    if isinstance(have, Shard):
        if isinstance(to, Shard):
            return _Exchange.apply(t, have.dim, to.dim, spec.sizes_along(d, have.dim), spec.sizes_along(d, to.dim), group)
        whole = _Gather.apply(t, have.dim, spec.sizes_along(d, have.dim), group)
        return _step(whole, spec.placed_along(d, Replicate()), d, to)
    if isinstance(to, Shard):
        return _Slice.apply(t, to.dim, spec.sizes_along(d, to.dim), group)
    if isinstance(to, Partial):
        return _First.apply(t, group) if to.reduce_op == "sum" else t.view_as(t)
    return t


def _cuts(placements: Sequence[Placement], dim: int) -> list[tuple[int, Placement]]:
    """Which dims of the mesh cut a tensor dim, in the order in which they do."""
    return [(d, placements[d]) for d in order_of_cuts(placements) if placements[d].is_shard(dim)]


def _through_whole(source: Sequence[Placement], target: Sequence[Placement]) -> set[int]:
    """The dims of the mesh that are Replicate on the way: several of them cut one tensor dim, before or after, and later cuts are undone first."""
    found: set[int] = set()
    for dim in {p.dim for p in (*source, *target) if isinstance(p, Shard)}:
        before, after = _cuts(source, dim), _cuts(target, dim)
        if len({d for d, _ in before + after}) > 1:
            same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
            found |= {d for d, _ in before[same:] + after[same:]}
    return found


def redistribute(t: Any, spec: Spec, placements: Sequence[Placement]) -> Any:
    """The local tensor of this process in other placements, with gradients."""
    if tuple(placements) == spec.placements or spec.mesh.get_coordinate() is None:  # who is not in the mesh has no part
        return t
    whole, cuts = _through_whole(spec.placements, placements), order_of_cuts(spec.placements)
    for d in cuts[::-1] + [d for d in range(spec.mesh.ndim) if d not in cuts]:
        to = Replicate() if d in whole else placements[d]
        t, spec = _step(t, spec, d, to), spec.placed_along(d, to)
    for d in order_of_cuts(placements):
        t, spec = _step(t, spec, d, placements[d]), spec.placed_along(d, placements[d])
    for d, to in enumerate(placements):
        t, spec = _step(t, spec, d, to), spec.placed_along(d, to)
    return t
