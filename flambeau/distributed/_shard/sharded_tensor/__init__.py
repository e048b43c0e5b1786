"""torch.distributed._shard.sharded_tensor: ShardedTensor: parts of a tensor on several ranks, each with its place; no functions take it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau.distributed._shard.metadata import ShardMetadata as ShardMetadata
from flambeau.distributed._shard.metadata import overlapping
from flambeau.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from flambeau.distributed.group import default_group, get_rank, get_world_size, member
from flambeau.distributed.objects import all_gather_object, gather_object
from flambeau.distributed.remote_device import _remote_device
from flambeau.trace.meta import Size


@dataclass
class Shard:
    """A part: its tensor and its place. ValueError where these do not fit."""

    tensor: Any
    metadata: ShardMetadata

    def __post_init__(self) -> None:
        if list(self.tensor.shape) != list(self.metadata.shard_sizes):
            raise ValueError(
                "Shard tensor size does not match with metadata.shard_lengths! "
                f"Found shard tensor size: {list(self.tensor.shape)}, metadata.shard_lengths: {self.metadata.shard_sizes}, "
            )

    @classmethod
    def from_tensor_and_offsets(cls, tensor: Any, shard_offsets: list[int], rank: int) -> Shard:
        """A part that begins there, on a rank."""
        return cls(tensor, ShardMetadata(shard_offsets, list(tensor.shape), _remote_device(f"rank:{rank}/{tensor.device}")))


class ShardedTensor:
    """A tensor whose parts lie on several ranks, as a spec says; each rank has those that are placed on it, without elements' values set."""

    def __init__(
        self, sharding_spec: Any, *size: Any, dtype: Any = None, layout: Any = None, requires_grad: bool = False, pin_memory: bool = False,
        memory_format: Any = None, process_group: Any = None, init_rrefs: bool = False,
    ) -> None:  # fmt: skip
        if init_rrefs:
            raise NotImplementedError("ShardedTensor: init_rrefs needs torch.distributed.rpc, which is not there")
        sizes = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
        kind = flambeau.get_default_dtype() if dtype is None else dtype
        self._group, self._spec = process_group, sharding_spec
        self._metadata = sharding_spec.build_metadata(sizes, TensorProperties(kind, requires_grad=requires_grad))
        mine = [s for s in self._metadata.shards_metadata if s.placement.rank() == get_rank()]
        self._local_shards = [Shard(flambeau.empty(s.shard_sizes, dtype=kind, requires_grad=requires_grad), s) for s in mine]

    @classmethod
    def _init_from_local_shards_and_global_metadata(
        cls, local_shards: list[Shard], sharded_tensor_metadata: ShardedTensorMetadata, process_group: Any = None, **_: Any
    ) -> ShardedTensor:
        """Of parts that are there; every rank says how the whole is cut. ValueError where a part is not among these."""
        placed = [s for s in sharded_tensor_metadata.shards_metadata if s.placement is None or s.placement.rank() == get_rank()]
        if [s.metadata.shard_offsets for s in local_shards] != [s.shard_offsets for s in placed]:
            raise ValueError(
                f"ShardedTensor: rank {get_rank()} has parts at {[s.metadata.shard_offsets for s in local_shards]}, and the metadata places on it "
                f"{[s.shard_offsets for s in placed]}"
            )
        made = cls.__new__(cls)
        made._group, made._spec, made._metadata, made._local_shards = process_group, None, sharded_tensor_metadata, list(local_shards)
        return made

    @classmethod
    def _init_from_local_shards(cls, local_shards: list[Shard], *global_size: Any, process_group: Any = None, **_: Any) -> ShardedTensor:
        """Of parts that are there. A collective, by which each rank learns of the others' parts. ValueError where two overlap, or dtypes differ."""
        sizes = tuple(global_size[0]) if len(global_size) == 1 and isinstance(global_size[0], (tuple, list)) else tuple(global_size)
        mine = ([s.metadata for s in local_shards], {(s.tensor.dtype, s.tensor.requires_grad) for s in local_shards}, sizes)
        everyone: list[Any] = [None] * get_world_size(process_group)
        all_gather_object(everyone, mine, group=process_group)
        parts = [part for metadatas, _, _ in everyone for part in metadatas]
        kinds = {kind for _, found, _ in everyone for kind in found}
        if len(kinds) != 1 or any(size != sizes for _, _, size in everyone):
            raise ValueError(
                f"ShardedTensor: all parts must have one dtype and requires_grad, and all ranks give one size; got {kinds}, {[e[2] for e in everyone]}"
            )
        pair = overlapping(parts)
        if pair is not None:
            raise ValueError(f"Shards {parts[pair[0]]} and {parts[pair[1]]} overlap")
        kind, requires_grad = kinds.pop()
        metadata = ShardedTensorMetadata(parts, Size(sizes), TensorProperties(kind, requires_grad=requires_grad))
        return cls._init_from_local_shards_and_global_metadata(local_shards, metadata, process_group)

    # -- what it says of itself -----------------------------------------------------------------------------------
    def metadata(self) -> ShardedTensorMetadata:
        """How it is cut."""
        return self._metadata

    def local_shards(self) -> list[Shard]:
        """The parts of this rank."""
        return self._local_shards

    def local_tensor(self) -> Any:
        """The tensor of this rank's part; NotImplementedError where it has several or none."""
        if len(self._local_shards) != 1:
            raise NotImplementedError("Only single local shard is supported.")
        return self._local_shards[0].tensor

    def sharding_spec(self) -> Any:
        """The spec that it was made by; None if it was made of parts."""
        return self._spec

    def size(self, dim: int | None = None) -> Any:
        """The size of the whole, or one of it."""
        return self._metadata.size if dim is None else self._metadata.size[dim]

    shape = property(size)

    def dim(self) -> int:
        """How many dims it has."""
        return len(self._metadata.size)

    ndim = property(dim)

    def numel(self) -> int:
        """How many elements the whole has."""
        return int(self._metadata.size.numel())

    @property
    def dtype(self) -> Any:
        """Of its elements."""
        return self._metadata.tensor_properties.dtype

    @property
    def requires_grad(self) -> bool:
        """Whether its parts require gradients."""
        return self._metadata.tensor_properties.requires_grad

    def gather(self, dst: int = 0, out: Any = None, **_: Any) -> None:
        """The whole in `out` on rank `dst` of the group. A collective. ValueError there without `out`, or where it has another size."""
        group = member(self._group) or default_group()
        root = group.rank() == dst
        if root and (out is None or tuple(out.shape) != tuple(self.size())):
            raise ValueError(f"ShardedTensor.gather: rank {dst} needs `out` of shape {tuple(self.size())}, got {None if out is None else tuple(out.shape)}")
        everyone: list[Any] | None = [None] * group.size() if root else None
        parts = [(s.metadata.shard_offsets, s.tensor.detach()) for s in self._local_shards]
        gather_object(parts, everyone, group=group, group_dst=dst)
        for offsets, tensor in [part for each in everyone or [] for part in each]:
            place = out
            for d, (start, length) in enumerate(zip(offsets, tensor.shape, strict=True)):
                place = place.narrow(d, start, length)
            place.detach().copy_(tensor)

    def __repr__(self) -> str:
        return f"ShardedTensor({self._metadata})"


def init_from_local_shards(local_shards: list[Shard], *global_size: Any, process_group: Any = None, init_rrefs: bool = False) -> ShardedTensor:
    """A ShardedTensor of parts that are there. A collective."""
    return ShardedTensor._init_from_local_shards(local_shards, *global_size, process_group=process_group)


def _filled(fill: Callable[[Any], Any]) -> Callable[..., ShardedTensor]:
    def make(sharding_spec: Any, *size: Any, **options: Any) -> ShardedTensor:
        made = ShardedTensor(sharding_spec, *size, **options)
        with flambeau.no_grad():
            for shard in made.local_shards():
                fill(shard.tensor)
        return made

    return make


empty = ShardedTensor
zeros, ones = _filled(lambda t: t.zero_()), _filled(lambda t: t.fill_(1))
rand, randn = _filled(lambda t: t.uniform_()), _filled(lambda t: t.normal_())


def full(sharding_spec: Any, size: Sequence[int], fill_value: Any, **options: Any) -> ShardedTensor:
    """One number everywhere."""
    return _filled(lambda t: t.fill_(fill_value))(sharding_spec, *size, **options)


def state_dict_hook(module: Any, destination: Any, prefix: str, local_metadata: Any) -> None:
    """A hook of state_dict that adds the ShardedTensors that are attributes of modules."""
    for name, each in module.named_modules():
        for key, value in vars(each).items():
            if isinstance(value, ShardedTensor):
                destination[f"{prefix}{name}{'.' if name else ''}{key}"] = value


def pre_load_state_dict_hook(
    module: Any, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: Any, unexpected_keys: Any, error_msgs: Any
) -> None:
    """A hook of load_state_dict that takes the ShardedTensors of a state as attributes of modules."""
    for name, each in module.named_modules():
        for key in vars(each):
            full_name = f"{prefix}{name}{'.' if name else ''}{key}"
            if isinstance(state_dict.get(full_name), ShardedTensor):
                setattr(each, key, state_dict[full_name])
