"""torch.distributed.checkpoint.default_planner: plans of save and load that can be taken further by subclasses."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import flambeau
from flambeau.distributed._shard.sharded_tensor import ShardedTensor
from flambeau.distributed.checkpoint import _nested
from flambeau.distributed.checkpoint import metadata as kinds
from flambeau.distributed.checkpoint._items import Item, is_tensor, local_at, metadata_of, owners_of, parts, plan_of
from flambeau.distributed.checkpoint._traverse import set_element
from flambeau.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)  # fmt: skip
from flambeau.distributed.tensor.api import DTensor
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size


def _write_item(item: Item, value: Any) -> WriteItem:
    if item.offset is None:
        return WriteItem(kinds.MetadataIndex(item.name), WriteItemType.BYTE_IO)
    chunk = kinds.ChunkStorageMetadata(Size(item.offset), Size(item.shape))
    kind = WriteItemType.SHARD if not isinstance(value, Tensor) or isinstance(value, DTensor) else WriteItemType.TENSOR
    properties = kinds.TensorProperties(value.dtype, requires_grad=value.requires_grad)
    return WriteItem(kinds.MetadataIndex(item.name, item.offset), kind, None, TensorWriteData(chunk, properties, Size(item.whole)))


def _item(written: WriteItem) -> Item:
    data = written.tensor_data
    if data is None:
        return Item(written.index.fqn, None)
    shape, kind = tuple(data.chunk.sizes), data.properties.dtype
    nbytes = kind.itemsize
    for n in shape:
        nbytes *= n
    return Item(written.index.fqn, tuple(data.chunk.offsets), shape, tuple(data.size), kind.name, nbytes)


def create_default_local_save_plan(state_dict: Any, is_coordinator: bool) -> SavePlan:
    """What this process could write of a state of names."""
    return SavePlan([_write_item(item, state_dict[item.name]) for item in plan_of(state_dict)])


def create_default_global_save_plan(all_plans: list[SavePlan], rewrite_index_hints: bool = True) -> tuple[list[SavePlan], kinds.Metadata]:
    """The plans with the place of each part in the metadata (`index.index`), and the metadata. Nothing is left out: see dedup_save_plans."""
    items = [[_item(written) for written in plan.items] for plan in all_plans]
    metadata = metadata_of(items, {})
    metadata.planner_data = None
    if not rewrite_index_hints:
        return list(all_plans), metadata

    def placed(w: WriteItem) -> WriteItem:
        if w.tensor_data is None:
            return w
        chunks = [tuple(chunk.offsets) for chunk in metadata.state_dict_metadata[w.index.fqn].chunks]
        place = chunks.index(tuple(w.tensor_data.chunk.offsets))
        return replace(w, index=kinds.MetadataIndex(w.index.fqn, w.index.offset, place))

    return [replace(plan, items=[placed(w) for w in plan.items]) for plan in all_plans], metadata


def create_default_local_load_plan(state_dict: Any, metadata: kinds.Metadata, strict: bool = True) -> LoadPlan:
    """What this process reads into a state of names."""
    planner = DefaultLoadPlanner(flatten_state_dict=False, allow_partial_load=not strict)
    planner.set_up_planner(state_dict, metadata)
    return planner.create_local_plan()


def _create_default_local_metadata(state_dict: Any) -> kinds.Metadata:
    """The metadata that one process can make: of a ShardedTensor all parts, of others its own."""
    own = [item for item in plan_of(state_dict) if not isinstance(state_dict[item.name], ShardedTensor)]
    for name, value in state_dict.items():
        if isinstance(value, ShardedTensor):
            own += [Item(name, tuple(s.shard_offsets), tuple(s.shard_sizes), tuple(value.size()), value.dtype.name) for s in value.metadata().shards_metadata]
    found = metadata_of([own], {})
    found.planner_data = None
    return found


class DefaultSavePlanner(SavePlanner):
    """Nested states have names with dots (unless `flatten_state_dict` is False), and what several processes have is written once."""

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, dedup_replicated_tensors: Any = None, **options: Any) -> None:
        self.flatten_state_dict, self.flatten_sharded_tensors = flatten_state_dict, flatten_sharded_tensors
        self.mappings: dict[str, tuple[Any, ...]] = {}

    def set_up_planner(self, state_dict: Any, storage_meta: kinds.StorageMeta | None = None, is_coordinator: bool = False) -> None:
        """A save begins."""
        self.mappings = {}
        if self.flatten_state_dict:
            state_dict, self.mappings = _nested.flatten(state_dict)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self) -> SavePlan:
        """What this process could write."""
        items = [_write_item(item, self.state_dict[item.name]) for item in plan_of(self.state_dict)]
        self.plan = SavePlan(items, planner_data=self.mappings if self.flatten_state_dict else None)
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], kinds.Metadata]:
        """Each process's plan, and the metadata."""
        items = [[_item(written) for written in plan.items] for plan in all_plans]
        owners = owners_of(items)
        paths = {name: path for plan in all_plans for name, path in (plan.planner_data or {}).items()}
        self.metadata = metadata_of(items, paths)
        if not self.flatten_state_dict:
            self.metadata.planner_data = None
        self.global_plan = [
            replace(plan, items=[w for w, item in zip(plan.items, mine, strict=True) if owners[item.name, item.offset] == rank])
            for rank, (plan, mine) in enumerate(zip(all_plans, items, strict=True))
        ]
        return self.global_plan, self.metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """This process's part of the global plan."""
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Any:
        """The tensor, or io.BytesIO, of an item."""
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: kinds.MetadataIndex) -> Any:
        """What a name of the state stands for: of a tensor this process's part."""
        value = self.state_dict[index.fqn]
        return local_at(index.fqn, value, index.offset) if is_tensor(value) else value

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """It as it is written."""
        if write_item.type is not WriteItemType.BYTE_IO:
            return object
        stream = io.BytesIO()
        flambeau.save(object, stream)
        return stream


class DefaultLoadPlanner(LoadPlanner):
    """`allow_partial_load`: names that the checkpoint has not keep what they have."""

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False) -> None:
        self.flatten_state_dict, self.flatten_sharded_tensors, self.allow_partial_load = flatten_state_dict, flatten_sharded_tensors, allow_partial_load
        self.mappings: dict[str, tuple[Any, ...]] = {}

    def set_up_planner(self, state_dict: Any, metadata: kinds.Metadata | None = None, is_coordinator: bool = False) -> None:
        """A load begins."""
        self.original_state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator
        self.mappings = {}
        if self.flatten_state_dict:
            state_dict, self.mappings = _nested.flatten(state_dict)
        self.state_dict = state_dict

    def create_local_plan(self) -> LoadPlan:
        """What this process reads. RuntimeError for a name that the checkpoint has not, ValueError for another size."""
        assert self.metadata is not None
        items: list[ReadItem] = []
        for name, value in self.state_dict.items():
            entry = self.metadata.state_dict_metadata.get(name)
            if entry is None:
                if not self.allow_partial_load:
                    raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
            elif isinstance(entry, kinds.BytesStorageMetadata):
                index = kinds.MetadataIndex(name)
                items.append(ReadItem(LoadItemType.BYTE_IO, index, Size((0,)), index, Size((0,)), Size((0,))))
            elif not is_tensor(value):
                raise ValueError(f"{name} is a tensor in the checkpoint, and of type {type(value).__name__} in the state that is loaded")
            elif tuple(entry.size) != tuple(value.shape):
                raise ValueError(f"Size mismatch between saved {tuple(entry.size)} and current: {tuple(value.shape)} for {name}")
            else:
                for shape, offset, _ in parts(name, value):
                    items.extend(boxes(name, entry, offset, shape))
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Each process's plan."""
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """This process's part of the global plan."""
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take an object, which is read without executing anything."""
        found = flambeau.load(value, map_location="cpu")
        name = read_item.dest_index.fqn
        self.state_dict[name] = found
        if self.flatten_state_dict:
            _nested.put(self.original_state_dict, self.mappings[name], found)

    def resolve_tensor(self, read_item: ReadItem) -> Any:
        """The elements to fill."""
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Any) -> None:
        """It was filled."""

    def lookup_tensor(self, index: kinds.MetadataIndex) -> Any:
        """This process's part of a tensor of the state."""
        return local_at(index.fqn, self.state_dict[index.fqn], index.offset)

    def transform_tensor(self, read_item: ReadItem, tensor: Any) -> Any:
        """The box of it that an item fills."""
        return narrowed(tensor, read_item.dest_offsets, read_item.lengths)


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Fills an empty state with all that a checkpoint holds, or with what is under `keys` (names with dots, whole or from their beginning)."""

    def __init__(self, keys: Any = None, *arguments: Any, **options: Any) -> None:
        self.keys = keys
        super().__init__(*arguments, **options)

    def _should_include_key(self, key: str, metadata: kinds.Metadata) -> bool:
        path = (metadata.planner_data or {}).get(key, (key,))
        return self.keys is None or key in self.keys or any(".".join(map(str, path[:n])) in self.keys for n in range(1, len(path) + 1))

    def set_up_planner(self, state_dict: Any, metadata: kinds.Metadata | None = None, is_coordinator: bool = False) -> None:
        """A load begins. AssertionError where the state is not empty, or there is no metadata."""
        if state_dict:
            raise AssertionError(f"the state to load into must be empty, as it is built from the checkpoint; it has {list(state_dict)[:4]}")
        if metadata is None:
            raise AssertionError("the metadata of a checkpoint is needed to build its state; got None")
        for name, entry in metadata.state_dict_metadata.items():
            if self._should_include_key(name, metadata):
                tensor = isinstance(entry, kinds.TensorStorageMetadata)
                value = flambeau.empty(tuple(entry.size), dtype=entry.properties.dtype) if tensor else entry
                set_element(state_dict, (metadata.planner_data or {}).get(name, (name,)), value)
        super().set_up_planner(state_dict, metadata, is_coordinator)


def narrowed(tensor: Any, offsets: Any, lengths: Any) -> Any:
    """A box of elements, as a view."""
    for dim, (start, length) in enumerate(zip(offsets, lengths, strict=True)):
        tensor = tensor.narrow(dim, start, length)
    return tensor


def fill(planner: LoadPlanner, item: ReadItem, stored: Any) -> None:
    """Copy a box of a stored tensor into the planner's tensor. ValueError if that has another size."""
    source = narrowed(stored, item.storage_offsets, item.lengths)
    target = planner.resolve_tensor(item).detach()
    if tuple(target.shape) != tuple(source.shape):
        raise ValueError(f"req {item.storage_index} mismatch sizes {tuple(target.shape)} vs {tuple(source.shape)}")
    target.copy_(source)
    planner.commit_tensor(item, target)


def boxes(name: str, entry: kinds.TensorStorageMetadata, offset: tuple[int, ...], shape: tuple[int, ...]) -> list[ReadItem]:
    """What a part shares with each stored part."""
    found = []
    for chunk in entry.chunks:
        starts = [max(a, b) for a, b in zip(offset, chunk.offsets, strict=True)]
        ends = [min(a + n, b + m) for a, n, b, m in zip(offset, shape, chunk.offsets, chunk.sizes, strict=True)]
        if all(s < e for s, e in zip(starts, ends, strict=True)):
            there = Size([s - b for s, b in zip(starts, chunk.offsets, strict=True)])
            here = Size([s - a for s, a in zip(starts, offset, strict=True)])
            lengths = Size([e - s for s, e in zip(starts, ends, strict=True)])
            stored = kinds.MetadataIndex(name, tuple(chunk.offsets))
            found.append(ReadItem(LoadItemType.TENSOR, kinds.MetadataIndex(name, offset), here, stored, there, lengths))
    return found
