"""torch.distributed.checkpoint.filesystem: checkpoints in folders, as writers and readers that planners can be given to."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, replace
from typing import Any

from flambeau.distributed.checkpoint import _files
from flambeau.distributed.checkpoint._files import _StorageInfo as _StorageInfo
from flambeau.distributed.checkpoint.default_planner import fill
from flambeau.distributed.checkpoint.metadata import Metadata, StorageMeta
from flambeau.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner
from flambeau.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from flambeau.futures import Future


@dataclass
class _StoragePrefix:
    prefix: str


class FileSystemWriter(StorageWriter):
    """A folder to write a checkpoint to. `sync_files`: data is on the disk when save returns. Other options are accepted."""

    def __init__(self, path: Any, single_file_per_rank: bool = True, sync_files: bool = True, thread_count: int = 1, **options: Any) -> None:
        self.path, self.sync_files = os.fspath(path), sync_files
        self.save_id = uuid.uuid4().hex

    @property
    def checkpoint_id(self) -> str:
        """The folder."""
        return self.path

    def reset(self, checkpoint_id: Any = None) -> None:
        """A new checkpoint begins, in another folder if one is given."""
        if checkpoint_id is not None:
            self.path = os.fspath(checkpoint_id)
        self.save_id = uuid.uuid4().hex

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Make the folder."""
        os.makedirs(self.path, exist_ok=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Each plan with the name of its file: not one of those of the checkpoint that is there."""
        suffix = "_1" if _files.suffix_of(self.path) == "_0" else "_0"
        return [replace(plan, storage_data=_StoragePrefix(f"__{rank}{suffix}")) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the items into this process's file."""
        found = {}
        if plan.items:
            items = ((item.index, _plain(planner.resolve_data(item))) for item in plan.items)
            found = _files.write_data(self.path, f"{plan.storage_data.prefix}.distcp", items, self.sync_files, bytes_as_they_are=True)
        future: Future[list[WriteResult]] = Future()
        future.set_result([WriteResult(index, info.length, info) for index, info in found.items()])
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the metadata, and remove what was there before."""
        metadata.storage_data = {result.index: result.storage_data for written in results for result in written}
        metadata.storage_meta = self.storage_meta()
        metadata.version = _files.VERSION
        _files.write_metadata(self.path, metadata, self.sync_files)
        _files.remove_unused(self.path, metadata)

    def storage_meta(self) -> StorageMeta | None:
        """Which checkpoint it is."""
        return StorageMeta(self.path, self.save_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether it is a folder that is there, or could be."""
        return isinstance(checkpoint_id, os.PathLike) or "://" not in str(checkpoint_id)


def _plain(value: Any) -> Any:
    """A tensor without the rest of the memory that it is a view of."""
    return value.detach().clone() if hasattr(value, "untyped_storage") and value.untyped_storage().nbytes() != value.numel() * value.element_size() else value


class FileSystemReader(StorageReader):
    """A folder with a checkpoint."""

    def __init__(self, path: Any, **options: Any) -> None:
        self.path = os.fspath(path)
        self.storage_data: Any = {}
        self.load_id = uuid.uuid4().hex

    @property
    def checkpoint_id(self) -> str:
        """The folder."""
        return self.path

    def reset(self, checkpoint_id: Any = None) -> None:
        """A load begins, from another folder if one is given."""
        if checkpoint_id is not None:
            self.path = os.fspath(checkpoint_id)
        self.storage_data = {}
        self.load_id = uuid.uuid4().hex

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint holds."""
        found = _files.read_metadata(self.path)
        if found.storage_meta is None:
            found.storage_meta = StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Where everything lies."""
        self.storage_data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill the planner's tensors, and hand it objects' bytes. ValueError where a tensor of the planner has another size."""
        for item in plan.items:
            info = self.storage_data[item.storage_index]
            if item.type is LoadItemType.BYTE_IO:
                planner.load_bytes(item, _files.read_bytes(self.path, info))
                continue
            fill(planner, item, _files.read_item(self.path, info).detach())
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether it is a folder that is there, or could be."""
        return FileSystemWriter.validate_checkpoint_id(checkpoint_id)
