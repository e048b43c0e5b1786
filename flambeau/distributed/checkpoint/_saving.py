"""torch.distributed.checkpoint: save, load and async_save. Every process writes its parts; the metadata, which makes them a checkpoint, comes last."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from copy import deepcopy
from functools import partial, wraps
from typing import Any, TypeVar

from flambeau.distributed._shard.sharded_tensor import Shard, ShardedTensor
from flambeau.distributed.checkpoint import _files, _nested, _planned
from flambeau.distributed.checkpoint import metadata as kinds
from flambeau.distributed.checkpoint._items import local_at, metadata_of, owners_of, part, plan_of, states_of
from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from flambeau.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from flambeau.distributed.checkpoint.planner import LoadPlanner, SavePlanner
from flambeau.distributed.checkpoint.storage import StorageReader, StorageWriter
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here

F = TypeVar("F", bound=Callable[..., Any])


def _older_order(name: str) -> Callable[[F], F]:
    """Takes a second argument in its place as this one, with PyTorch's warning: its order before 2.1."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(state_dict: Any, *older: Any, **options: Any) -> Any:
            if len(older) == 1:
                text = f"The argument order of {function.__name__} has been changed. Please check the document to avoid future breakages."
                warn_here(text)
                options[name] = older[0]
            elif older:
                raise TypeError(f"{function.__name__}() takes 1 positional argument but {1 + len(older)} were given")
            return function(state_dict, **options)

        return call  # type: ignore[return-value]

    return decorate


class _Save:
    """One checkpoint on its way: what is to be written by this process, and who it is among all."""

    def __init__(self, state_dict: Any, writer: FileSystemWriter, group: Any, alone: bool, copies: bool) -> None:
        self.writer, self.ranks = writer, _planned.Ranks(group, alone)
        self.rank = self.ranks.rank
        flat: dict[str, Any] = {}

        def local() -> Any:
            writer.reset()
            found, paths = _nested.flatten(states_of(state_dict))
            flat.update(found)
            os.makedirs(writer.path, exist_ok=True)
            return plan_of(flat), paths, writer.save_id, _files.suffix_of(writer.path) if self.rank == 0 else ""

        everyone = self.ranks.all("plan", local)
        plans = [e[0] for e in everyone]
        self.id, self.before = everyone[0][2], everyone[0][3]
        owners = owners_of(plans)
        self.metadata = metadata_of(plans, {name: path for e in everyone for name, path in e[1].items()})
        self.items = []
        for item in plans[self.rank]:
            if owners[item.name, item.offset] == self.rank:
                value = flat[item.name] if item.offset is None else local_at(item.name, flat[item.name], item.offset)
                if item.offset is not None:
                    value = value.clone() if copies or value.untyped_storage().nbytes() != item.nbytes else value
                self.items.append((kinds.MetadataIndex(item.name, item.offset), value))

    def write(self) -> dict[Any, Any]:
        """This process's file."""
        if not self.items:
            return {}
        return _files.write_data(self.writer.path, f"__{self.rank}{self._new()}.distcp", self.items, self.writer.sync_files)

    def _new(self) -> str:
        return "_1" if self.before == "_0" else "_0"

    def finish(self, everyone: list[Any]) -> kinds.Metadata:
        """The metadata, by the first process."""
        self.metadata.storage_data = {index: info for found in everyone for index, info in found.items()}
        self.metadata.storage_meta = kinds.StorageMeta(self.writer.path, self.id)
        self.metadata.version = _files.VERSION
        _files.write_metadata(self.writer.path, self.metadata, self.writer.sync_files)
        _files.remove_unused(self.writer.path, self.metadata)
        return self.metadata

    def now(self) -> kinds.Metadata:
        """Write, and wait for all."""
        everyone = self.ranks.all("write", self.write)

        def finish() -> None:
            self.finish(everyone)

        self.ranks.first("write", finish)
        return self.metadata

    def beside(self, limit: float) -> kinds.Metadata:
        """Write beside the program: no collectives, the processes' notes are files that the first one waits for."""
        note = os.path.join(self.writer.path, f".{self.id}-{{}}.part")
        found = self.write()
        with _files.replacing(note.format(self.rank)) as file:
            file.write(pickle.dumps({(i.fqn, None if i.offset is None else tuple(i.offset)): (n.relative_path, n.offset, n.length) for i, n in found.items()}))
        if self.rank:
            return self.metadata
        everyone, end = [], time.monotonic() + limit
        for rank in range(self.ranks.size):
            while not os.path.exists(note.format(rank)):
                if time.monotonic() > end:
                    raise TimeoutError(f"async_save: rank {rank} has not written its part of {self.writer.path} within {limit:g} s")
                time.sleep(0.02)
            with open(note.format(rank), "rb") as file:
                entries = pickle.loads(file.read())
            everyone.append({kinds.MetadataIndex(*key): _files._StorageInfo(*value) for key, value in entries.items()})
        metadata = self.finish(everyone)
        for rank in range(self.ranks.size):
            os.unlink(note.format(rank))
        return metadata


def _writer(storage_writer: Any, checkpoint_id: Any) -> FileSystemWriter:
    if storage_writer is None:
        return FileSystemWriter(_named(checkpoint_id))
    return storage_writer if checkpoint_id is None else FileSystemWriter(checkpoint_id, sync_files=storage_writer.sync_files)


def _named(checkpoint_id: Any) -> Any:
    if checkpoint_id is None:
        raise RuntimeError("`checkpoint_id` must be specified if storage_writer/storage_reader is None")
    return checkpoint_id


def _own(planner: Any, planner_class: Any, default: Any, storage: Any, storage_class: Any, files: Any, what: str) -> bool:
    """Whether the planner or the storage is somebody's own. TypeError where it is none."""
    for value, needed, name in ((planner, planner_class, "planner"), (storage, storage_class, f"storage_{what}")):
        if value is not None and not isinstance(value, needed):
            raise TypeError(f"torch.distributed.checkpoint: {name} must be a {needed.__name__}, got {type(value).__name__}")
    flat = planner is None or (type(planner) is default and planner.flatten_state_dict)
    return not flat or (storage is not None and type(storage) is not files)


@_older_order("storage_writer")
def save(
    state_dict: Any, *, checkpoint_id: Any = None, storage_writer: Any = None, planner: Any = None, process_group: Any = None, no_dist: bool = False,
    use_collectives: bool = True,
) -> kinds.Metadata:  # fmt: skip
    """Write a state, whose DTensors lie in parts, into a folder, or by a planner and a storage of one's own. All processes call it.

    In a folder a checkpoint that was there stays whole until the new one is.
    """
    if _own(planner, SavePlanner, DefaultSavePlanner, storage_writer, StorageWriter, FileSystemWriter, "writer"):
        writer = storage_writer if storage_writer is not None else FileSystemWriter(_named(checkpoint_id))
        return _planned.save(states_of(state_dict), writer, checkpoint_id, planner or DefaultSavePlanner(), _planned.Ranks(process_group, no_dist))
    return _Save(state_dict, _writer(storage_writer, checkpoint_id), process_group, no_dist, False).now()


@_older_order("storage_writer")
def async_save(
    state_dict: Any, *, checkpoint_id: Any = None, storage_writer: Any = None, planner: Any = None, process_group: Any = None, no_dist: bool = False,
    timeout: float = 600.0, **options: Any,
) -> Future[Any]:  # fmt: skip
    """save() beside the program: the state is copied before this returns. `result()` of what is returned waits.

    A planner and a storage of one's own are called in the thread beside. `timeout`: the seconds that the processes wait for each other.
    """
    work: Callable[[], kinds.Metadata]
    if _own(planner, SavePlanner, DefaultSavePlanner, storage_writer, StorageWriter, FileSystemWriter, "writer"):
        writer = storage_writer if storage_writer is not None else FileSystemWriter(_named(checkpoint_id))
        states: dict[str, Any] = {}
        _planned.Ranks(process_group, no_dist).all("plan", lambda: states.update(_copied(states_of(state_dict))))
        ranks = _planned.RanksBeside(process_group, no_dist, timeout)
        work = partial(_planned.save, states, writer, checkpoint_id, planner or DefaultSavePlanner(), ranks)
    else:
        save = _Save(state_dict, _writer(storage_writer, checkpoint_id), process_group, no_dist, True)
        for _, value in save.items:
            if isinstance(value, Tensor):
                value.data_ptr()  # the copy is made now, and not in the other thread
        work = partial(save.beside, timeout)
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="async_save").start()
    return future


def _copied(value: Any) -> Any:
    """A state with memory of its own, made now."""
    if isinstance(value, ShardedTensor):
        shards = [Shard(_copied(s.tensor), s.metadata) for s in value.local_shards()]
        return ShardedTensor._init_from_local_shards_and_global_metadata(shards, value.metadata(), value._group)
    if isinstance(value, Tensor):
        copy = value.detach().clone()
        part("", copy)[2].data_ptr()
        return copy
    if isinstance(value, Mapping):
        return {key: _copied(v) for key, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(v) for v in value)
    return deepcopy(value)


@_older_order("storage_reader")
def load(
    state_dict: Any, *, checkpoint_id: Any = None, storage_reader: Any = None, planner: Any = None, process_group: Any = None, no_dist: bool = False
) -> None:
    """Fill a state in place from a folder, whoever wrote it: parts need not be cut as they were. Each process reads what it needs.

    CheckpointException, on all processes, where on one a name is missing (unless the planner allows partial loading) or a size differs.
    """
    _own(planner, LoadPlanner, DefaultLoadPlanner, storage_reader, StorageReader, FileSystemReader, "reader")
    reader = storage_reader if storage_reader is not None else FileSystemReader(_named(checkpoint_id))
    _planned.load(state_dict, reader, checkpoint_id, planner or DefaultLoadPlanner(), process_group, no_dist)
