"""torch.distributed.tensor._dtensor_spec: a mesh, placements, and what a tensor is as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from flambeau.distributed.tensor.spec import Spec


class TensorMeta(NamedTuple):
    """The shape, strides and dtype of a whole tensor."""

    shape: Any
    stride: tuple[int, ...]
    dtype: Any


class DTensorSpec:
    """How a tensor lies over a mesh: `DTensor(local, DTensorSpec(mesh, placements, tensor_meta=TensorMeta(shape, stride, dtype)), requires_grad=...)`."""

    def __init__(self, mesh: DeviceMesh, placements: Sequence[Placement], tensor_meta: TensorMeta | None = None) -> None:
        self.mesh, self.placements, self.tensor_meta = mesh, tuple(placements), tensor_meta

    def _known(self) -> TensorMeta:
        if self.tensor_meta is None:
            raise ValueError("tensor_meta is not set")
        return self.tensor_meta

    @property
    def shape(self) -> Any:
        """The shape of the whole; ValueError without `tensor_meta`."""
        return self._known().shape

    @property
    def stride(self) -> tuple[int, ...]:
        """The strides of the whole; ValueError without `tensor_meta`."""
        return self._known().stride

    @property
    def ndim(self) -> int:
        """How many dims the tensor has; ValueError without `tensor_meta`."""
        return len(self._known().shape)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The processes."""
        return self.mesh

    @property
    def num_shards(self) -> int:
        """In how many parts the tensor is cut."""
        count = 1
        for size, placement in zip(self.mesh.shape, self.placements, strict=True):
            count *= size if isinstance(placement, Shard) else 1
        return count

    @property
    def num_shards_map(self) -> list[int]:
        """In how many parts each dim of the tensor is cut."""
        counts = [1] * self.ndim
        for size, placement in zip(self.mesh.shape, self.placements, strict=True):
            if isinstance(placement, Shard):
                counts[placement.dim] *= size
        return counts

    @property
    def dim_map(self) -> list[int]:
        """For each dim of the tensor, the dim of the mesh that cuts it, or -1; ValueError where several do."""
        found = [-1] * self.ndim
        for d, placement in enumerate(self.placements):
            if isinstance(placement, Shard):
                if found[placement.dim] > -1:
                    raise ValueError(
                        f"Tensor dim {placement.dim} is already sharded on mesh dim {found[placement.dim]}, DTensor operator implementation does not support "
                        "things like hybrid sharding strategies yet (i.e. [Shard(0), Shard(0)])"
                    )
                found[placement.dim] = d
        return found

    @property
    def sums(self) -> list[int]:
        """The dims of the mesh along which processes have parts of a sum."""
        return [d for d, placement in enumerate(self.placements) if isinstance(placement, Partial)]

    @classmethod
    def from_dim_map(cls, mesh: DeviceMesh, dim_map: Sequence[int], sums: Sequence[int], tensor_meta: TensorMeta | None = None) -> DTensorSpec:
        """From `dim_map` and `sums`; RuntimeError where a dim of the mesh is named twice."""
        placements: list[Placement] = [Partial() if d in sums else Replicate() for d in range(mesh.ndim)]
        for dim, d in enumerate(dim_map):
            if d < 0:
                continue
            before = placements[d]
            if isinstance(before, Shard):
                raise RuntimeError(f"DeviceMesh dimension can't be mapped to two dimension of the same tensor: {dim} and {before.dim}")
            if isinstance(before, Partial):
                raise RuntimeError(f"DeviceMesh dimension {d} cannot be both shard and partial!")
            placements[d] = Shard(dim)
        return cls(mesh, placements, tensor_meta)

    def is_replicated(self) -> bool:
        """Whether every process has all of it."""
        return all(placement.is_replicate() for placement in self.placements)

    def is_sharded(self) -> bool:
        """Whether it is cut."""
        return any(placement.is_shard() for placement in self.placements)

    def own(self) -> Spec:
        """The same as DTensors here keep it."""
        return Spec(self.mesh, self.placements, tuple(self._known().shape))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DTensorSpec):
            return NotImplemented
        return (self.mesh, self.placements, self.tensor_meta) == (other.mesh, other.placements, other.tensor_meta)

    def __hash__(self) -> int:
        return hash((self.mesh, self.placements, self.tensor_meta))

    def __repr__(self) -> str:
        return f"DTensorSpec(mesh={self.mesh}, placements={self.placements}, tensor_meta={self.tensor_meta})"
