"""How a tensor lies over a mesh: placements, and the shape of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor._utils import compute_local_shape, order_of_cuts
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard


@dataclass(frozen=True)
class Spec:
    """The mesh, one placement a dim of it, and the shape of the whole tensor."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    shape: tuple[int, ...]

    def local_shape(self) -> tuple[int, ...]:
        """The shape of this process's part."""
        return compute_local_shape(self.shape, self.mesh, self.placements)

    def gradient(self) -> Spec:
        """How gradients lie: of parts of a sum each process has the whole gradient."""
        return self.placed([Replicate() if isinstance(p, Partial) else p for p in self.placements])

    def placed(self, placements: Sequence[Placement]) -> Spec:
        """The same tensor in other placements."""
        return Spec(self.mesh, tuple(placements), self.shape)

    def placed_along(self, mesh_dim: int, placement: Placement) -> Spec:
        """The same tensor in another placement along one dim of the mesh."""
        return self.placed([*self.placements[:mesh_dim], placement, *self.placements[mesh_dim + 1 :]])

    def sizes_along(self, mesh_dim: int, dim: int) -> list[int]:
        """How a tensor dim is cut over a dim of the mesh: sizes by place, after what other dims of the mesh have cut of it before."""
        size = self.shape[dim]
        for d in order_of_cuts(self.placements):
            if d == mesh_dim:
                break
            if self.placements[d].is_shard(dim):
                size = Shard.local_shard_size_and_offset(size, self.mesh.shape[d], self.mesh.get_local_rank(d))[0]
        n = self.mesh.shape[mesh_dim]
        return [Shard.local_shard_size_and_offset(size, n, r)[0] for r in range(n)]


def normalized(placements: Any, mesh: DeviceMesh, ndim: int, where: str) -> tuple[Placement, ...]:
    """One placement a dim of the mesh, tensor dims from 0; all Replicate if None. Errors where they do not fit the mesh or the tensor."""
    if placements is None:
        return (Replicate(),) * mesh.ndim
    given = tuple(placements)
    if len(given) != mesh.ndim:
        raise ValueError(
            f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(given)}, and device_mesh.ndim: {mesh.ndim}. ({where})"
        )
    found: list[Placement] = []
    for p in given:
        if not isinstance(p, Placement):
            raise TypeError(f"{where}: placements are Shard(dim), Replicate() or Partial(), got {p!r}")
        if isinstance(p, Shard):
            if not -ndim <= p.dim < ndim:
                raise IndexError(f"{where}: {p!r} of a tensor with {ndim} dims; the dim must lie between {-ndim} and {ndim - 1}")
            p = type(p)(p.dim % ndim, *([p.split_factor] if hasattr(p, "split_factor") else []))
        found.append(p)
    return tuple(found)


def text(placements: Sequence[Any]) -> str:
    """Placements as messages print them: (S(0), R)."""
    return "(" + ", ".join(map(str, placements)) + ")"
