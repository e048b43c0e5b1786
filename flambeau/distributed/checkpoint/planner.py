"""torch.distributed.checkpoint.planner: what is written and read by whom, as plans, and who makes them."""

from __future__ import annotations

import abc
import io
from dataclasses import dataclass
from enum import Enum, auto
from math import prod
from typing import Any

from flambeau.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties


class WriteItemType(Enum):
    """What is written: a whole tensor, a part of one, or bytes."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """What is read: elements of a tensor, or bytes."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """Of bytes: how many."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """Of a tensor: the part, what it is beside its size, and the whole size."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: Any


@dataclass(frozen=True)
class WriteItem:
    """One thing that a process writes."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """The bytes of the whole tensor; None for what is none."""
        return None if self.tensor_data is None else prod(self.tensor_data.size) * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """A box of elements, or bytes, that a process reads: `lengths` elements from `storage_offsets` of a stored part to `dest_offsets` of its own."""

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: Any
    storage_index: MetadataIndex
    storage_offsets: Any
    lengths: Any


@dataclass(frozen=True)
class SavePlan:
    """What a process writes. `storage_data` is the writer's, `planner_data` the planner's."""

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """What a process reads. `storage_data` is the reader's, `planner_data` the planner's."""

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Who plans a save: each process a local plan; the coordinator makes global ones; each finishes its own, and resolves items when they are written."""

    @abc.abstractmethod
    def set_up_planner(self, state_dict: Any, storage_meta: StorageMeta | None = None, is_coordinator: bool = False) -> None:
        """A save begins."""

    @abc.abstractmethod
    def create_local_plan(self) -> SavePlan:
        """What this process could write."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """On the coordinator: each process's plan, and the metadata."""

    @abc.abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """This process's part of the global plan."""

    @abc.abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Any:
        """The tensor, or io.BytesIO, of an item."""


class LoadPlanner(abc.ABC):
    """Who plans a load, in the same way; the reader asks it for the tensors to fill, and hands it bytes."""

    @abc.abstractmethod
    def set_up_planner(self, state_dict: Any, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        """A load begins."""

    @abc.abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """What this process reads."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """On the coordinator: each process's plan."""

    @abc.abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """This process's part of the global plan."""

    @abc.abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take what was read."""

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """Where to read bytes to. NotImplementedError: take them by `load_bytes`."""
        raise NotImplementedError("LoadPlanner.resolve_bytes is not implemented")

    @abc.abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Any:
        """The tensor to fill: as large as `lengths` says."""

    @abc.abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Any) -> None:
        """It was filled."""
