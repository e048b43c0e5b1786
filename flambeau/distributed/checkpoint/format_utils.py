"""torch.distributed.checkpoint.format_utils: checkpoints in folders from files of torch.save, and back; such a file read by many processes."""

from __future__ import annotations

import argparse
import os
from typing import Any

import flambeau
from flambeau.distributed.checkpoint import _nested
from flambeau.distributed.checkpoint import metadata as kinds
from flambeau.distributed.checkpoint._saving import save
from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner, fill
from flambeau.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from flambeau.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from flambeau.distributed.checkpoint.state_dict_loader import _load_state_dict
from flambeau.distributed.checkpoint.storage import StorageReader
from flambeau.distributed.collectives import broadcast
from flambeau.distributed.group import get_rank, is_initialized
from flambeau.distributed.objects import broadcast_object_list
from flambeau.futures import Future
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size


def _no_tensor(name: str, asker: object) -> RuntimeError:
    return RuntimeError(f"Non-tensor value identified at {name}. At this time {type(asker).__name__} only supports loading Tensors.")


class BroadcastingTorchSaveReader(StorageReader):
    """A file of torch.save, which the coordinator alone reads; the others get its tensors one by one. With DynamicMetaLoadPlanner; tensors only.

    The file is an ordinary pickle, which can do anything: read none that you do not trust.
    """

    def __init__(self, checkpoint_id: Any = None, coordinator_rank: int = 0) -> None:
        self.checkpoint_id, self.coordinator_rank = checkpoint_id, coordinator_rank

    def read_metadata(self, *args: Any, **kwargs: Any) -> kinds.Metadata:
        """Nothing: the planner says what is read."""
        return kinds.Metadata({})

    def set_up_storage_reader(self, metadata: kinds.Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """A load begins. AssertionError where the coordinator is another rank than it was said to be, or no file is named."""
        self.is_coordinator = is_coordinator
        rank = get_rank() if is_initialized() else 0
        if is_coordinator and rank != self.coordinator_rank:
            raise AssertionError(f"Coordinator rank mismatch: expected {self.coordinator_rank}, got {rank}")
        if self.checkpoint_id is None:
            raise AssertionError("checkpoint_id must be set before setting up storage reader")

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fill the planner's tensors. On all ranks: RuntimeError for what is no tensor, KeyError for names that are missing, ValueError for other sizes."""
        for item in plan.items:
            if item.type is LoadItemType.BYTE_IO:
                raise _no_tensor(item.storage_index.fqn, self)
        assert isinstance(planner, DefaultLoadPlanner), f"BroadcastingTorchSaveReader needs a DefaultLoadPlanner, got {type(planner).__name__}"
        wanted: dict[str, list[ReadItem]] = {name: [] for name in planner.state_dict}
        for item in plan.items:
            wanted[item.storage_index.fqn].append(item)
        held: dict[str, Any] = {}
        told: list[Any] = [None]
        if self.is_coordinator:
            try:
                held = self._read(planner)
            except Exception as error:
                told = [error]
        if is_initialized():
            broadcast_object_list(told, src=self.coordinator_rank)
        if told[0] is not None:
            raise told[0]
        for name, items in wanted.items():
            value = planner.state_dict[name]
            tensor = held[name] if self.is_coordinator else flambeau.empty(tuple(value.shape), dtype=value.dtype)
            if is_initialized():
                broadcast(tensor, src=self.coordinator_rank)
            for item in items:
                fill(planner, item, tensor)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _read(self, planner: DefaultLoadPlanner) -> dict[str, Any]:
        """The tensors that the planner's state names, as large and of the dtypes that it has."""
        found = flambeau.load(self.checkpoint_id, map_location="cpu", weights_only=False)
        if planner.flatten_state_dict:
            found, _ = _nested.flatten(found)
        tensors = {}
        for name, value in planner.state_dict.items():
            if name not in found:
                raise KeyError(f"{os.fspath(self.checkpoint_id)} has no {name}; it has {', '.join(list(found)[:8])}")
            if not isinstance(found[name], Tensor):
                raise _no_tensor(name, self)
            if tuple(found[name].shape) != tuple(value.shape):
                raise ValueError(f"Size mismatch between saved {tuple(found[name].shape)} and current: {tuple(value.shape)} for {name}")
            tensors[name] = found[name].detach().to(value.dtype).contiguous()
        return tensors

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """The plan."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """The plans."""
        return plans

    def reset(self, checkpoint_id: Any = None) -> None:
        """A load begins, from another file."""
        self.checkpoint_id = checkpoint_id

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether it is a file."""
        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Reads what the state names from a storage that has no metadata. Tensors only."""

    def set_up_planner(self, state_dict: Any, metadata: kinds.Metadata | None = None, is_coordinator: bool = False) -> None:
        """A load begins. RuntimeError for what is no tensor."""
        super().set_up_planner(state_dict, metadata, is_coordinator)
        found: dict[str, Any] = {}
        for name, value in self.state_dict.items():
            if not isinstance(value, Tensor):
                raise _no_tensor(name, self)
            whole = kinds.ChunkStorageMetadata(Size((0,) * value.ndim), Size(tuple(value.shape)))
            found[name] = kinds.TensorStorageMetadata(kinds.TensorProperties(value.dtype), Size(tuple(value.shape)), [whole])
        self.metadata = kinds.Metadata(found)


def dcp_to_torch_save(dcp_checkpoint_dir: Any, torch_save_path: Any) -> None:
    """Write all that a checkpoint in a folder holds into one file of torch.save. One process calls it, and holds all of it."""
    state: dict[str, Any] = {}
    _load_state_dict(state, FileSystemReader(dcp_checkpoint_dir), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    flambeau.save(state, torch_save_path)


def torch_save_to_dcp(torch_save_path: Any, dcp_checkpoint_dir: Any) -> None:
    """Write what a file of torch.save holds as a checkpoint in a folder. One process calls it, and holds all of it.

    The file is an ordinary pickle, which can do anything: convert none that you do not trust.
    """
    save(flambeau.load(torch_save_path, map_location="cpu", weights_only=False), storage_writer=FileSystemWriter(dcp_checkpoint_dir), no_dist=True)


def main(arguments: list[str] | None = None) -> None:
    """The command: `torch_to_dcp FILE FOLDER`, or `dcp_to_torch FOLDER FILE`."""
    parser = argparse.ArgumentParser(description="Convert checkpoints")
    parser.add_argument("mode", choices=["torch_to_dcp", "dcp_to_torch"], help="what is converted into what")
    parser.add_argument("src", help="the file or folder that is there")
    parser.add_argument("dst", help="the folder or file that is written")
    given = parser.parse_args(arguments)
    convert, there = (torch_save_to_dcp, os.path.isfile) if given.mode == "torch_to_dcp" else (dcp_to_torch_save, os.path.isdir)
    if not there(given.src):
        parser.error(f"no checkpoint is at {given.src}")
    convert(given.src, given.dst)


if __name__ == "__main__":
    main()

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]
