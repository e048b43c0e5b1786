"""How fully_shard cuts one parameter: along a dim, over the processes of its mesh; a tensor parallel parameter is cut once more than it is already."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import flambeau
from flambeau.distributed.tensor.api import DTensor, inner, made
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _StridedShard
from flambeau.distributed.tensor.spec import Spec
from flambeau.nn.parameter import Parameter


@dataclass(frozen=True)
class Cut:
    """What a call works with has `shape`; each process keeps its share of `sizes` along `dim`.

    `spec`: of a tensor parallel parameter, of which a call works with this process's part, how it lies among those parts.
    """

    shape: tuple[int, ...]
    dim: int
    sizes: list[int]
    spec: Spec | None

    def part(self, whole: Any, rank: int) -> Any:
        """One process's part, a view."""
        return whole.narrow(self.dim, sum(self.sizes[:rank]), self.sizes[rank])

    def front(self, t: Any) -> Any:
        """A tensor with the dim that is cut in front: its parts are then pieces of memory."""
        return t.movedim(self.dim, 0).contiguous()

    def empty(self, dtype: Any) -> tuple[Any, list[Any]]:
        """(memory for the whole with that dim in front, its parts)."""
        whole = flambeau.empty((self.shape[self.dim], *self.shape[: self.dim], *self.shape[self.dim + 1 :]), dtype=dtype)
        return whole, list(whole.split(self.sizes, 0))

    def back(self, t: Any) -> Any:
        """The dims of `front` in their own order again."""
        return t.movedim(0, self.dim).contiguous()

    def placed(self, whole: Any) -> Any:
        """What a module has as its parameter during a call."""
        return whole if self.spec is None else made(whole, self.spec)


def cut(p: Any, name: str, mesh: Any, dim: int) -> tuple[Any, Cut]:
    """(the parameter as a DTensor that lies in parts over the last dim of `mesh`, how it was cut).

    ValueError for numbers, for a dim that is not there, and for tensor parallel parameters over a mesh that is not beside this one.
    """
    if not p.ndim:
        raise ValueError(f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1.")
    if not -p.ndim <= dim < p.ndim:
        raise ValueError(f"fully_shard: shard_placement_fn wants {name} of shape {tuple(p.shape)} cut along dim {dim}, which it has not")
    dim %= p.ndim
    spec = p._layout if isinstance(p, DTensor) else None
    local = inner(p).detach()
    size = mesh.size(mesh.ndim - 1)
    how = Cut(tuple(local.shape), dim, [Shard.local_shard_size_and_offset(local.shape[dim], size, r)[0] for r in range(size)], spec)
    part = how.part(local, mesh.get_local_rank(mesh.ndim - 1)).clone(memory_format=flambeau.contiguous_format)
    placements: list[Placement] = [*(Replicate() for _ in range(mesh.ndim - 1)), Shard(dim)]
    if spec is not None:
        if any(isinstance(each, Partial) for each in spec.placements):
            raise ValueError(f"fully_shard: {name} is a sum over processes, {spec.placements}; a parameter must be Shard or Replicate")
        parts = prod(n for n, each in zip(spec.mesh.shape, spec.placements, strict=True) if each.is_shard(dim))
        placements = [*placements[:-1], _StridedShard(dim, parts) if parts > 1 else Shard(dim), *spec.placements]
        mesh = mesh._beside(spec.mesh, f"fully_shard: the parameter {name}")
    return Parameter(DTensor(part, Spec(mesh, tuple(placements), tuple(p.shape))), p.requires_grad), how
