"""torch.distributed.tensor.placement_types: how a tensor lies in a mesh of processes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final


class Placement:
    """How a tensor lies along one dim of a mesh."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is cut, along this dim if one is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every process has all of it."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the processes' tensors have to be added up."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Cut along a dim of the tensor."""

    dim: int

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """Of a dim of this size the part of one process: (size, offset)."""
        full = (curr_local_size + num_chunks - 1) // num_chunks
        start = min(full * rank, curr_local_size)
        return min(full * (rank + 1), curr_local_size) - start, start

    _local_shard_size_and_offset = local_shard_size_and_offset

    def _split_tensor(self, tensor: Any, num_chunks: int, *, with_padding: bool = True, contiguous: bool = True) -> tuple[list[Any], list[int]]:
        """The parts of all processes, and by how much each is made longer (by zeros) so that all have one size; no such numbers without that."""
        from flambeau.distributed.tensor._collective_utils import pad_tensor

        if not 0 <= self.dim < tensor.ndim:
            raise AssertionError(f"Sharding dim {self.dim} greater than tensor ndim {tensor.ndim}")
        parts = [self._rows(tensor, num_chunks, rank) for rank in range(num_chunks)]
        pads = []
        if with_padding:
            longest = max(part.shape[self.dim] for part in parts)
            pads = [longest - part.shape[self.dim] for part in parts]
            if not isinstance(self, _StridedShard):  # as in PyTorch, whose strided parts stay as long as they are
                parts = [pad_tensor(part, self.dim, pad) for part, pad in zip(parts, pads, strict=True)]
        if contiguous:
            parts = [part.contiguous() for part in parts]
        return parts, pads

    def _rows(self, tensor: Any, num_chunks: int, rank: int) -> Any:
        """What one process has of a tensor."""
        length, start = self.local_shard_size_and_offset(tensor.shape[self.dim], num_chunks, rank)
        return tensor.narrow(self.dim, start, length)

    def _to_replicate_tensor(self, local_tensor: Any, mesh: Any, mesh_dim: int, current_logical_shape: Any) -> Any:
        """The tensor of this shape, of the parts that the processes along a dim of the mesh have. A collective."""
        import flambeau
        from flambeau.distributed.tensor.transitions import gathered

        size, count = current_logical_shape[self.dim], mesh.shape[mesh_dim]
        first = replace(self, dim=0)
        places = [first._rows(flambeau.arange(size), count, rank) for rank in range(count)]
        joined = gathered(local_tensor, self.dim, [len(part) for part in places], mesh.get_group(mesh_dim))
        return joined.index_select(self.dim, flambeau.cat(places).argsort())

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Shard):
    """Cut along a dim that later dims of the mesh have cut already, into `split_factor` parts: fully_shard of what is tensor parallel."""

    split_factor: int = 1

    def _rows(self, tensor: Any, num_chunks: int, rank: int) -> Any:
        """What one process has of each of the parts that later dims of the mesh have cut."""
        import flambeau

        cut = Shard(self.dim)
        return flambeau.cat([cut._rows(cut._rows(tensor, self.split_factor, i), num_chunks, rank) for i in range(self.split_factor)], dim=self.dim)

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """All of it in every process."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Parts of a sum (or of another reduction)."""

    reduce_op: str = "sum"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


@dataclass(frozen=True)
class _MaskPartial(Partial):
    """Parts of a sum in which each process has looked up what it has, and zeros elsewhere."""


_Partial: Final = Partial  # its older name


def __getattr__(name: str) -> Any:
    if name in ("DTensorSpec", "TensorMeta"):  # their older place
        from flambeau.distributed.tensor import _dtensor_spec

        return getattr(_dtensor_spec, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
