"""Saving and loading by a planner and a storage of somebody's own, in the order in which PyTorch calls them."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import flambeau
from flambeau.distributed.checkpoint import metadata as kinds
from flambeau.distributed.checkpoint._failures import CheckpointException, failure_of
from flambeau.distributed.checkpoint._items import states_of
from flambeau.distributed.checkpoint.planner import LoadPlanner, SavePlanner
from flambeau.distributed.checkpoint.storage import StorageReader, StorageWriter
from flambeau.distributed.errors import DistStoreError
from flambeau.distributed.group import get_rank, get_world_size, is_initialized, member
from flambeau.distributed.objects import all_gather_object


class Ranks:
    """The processes of a checkpoint. A failure of one is raised on all."""

    def __init__(self, group: Any, alone: bool) -> None:
        self.group, self.alone = group, alone or not is_initialized()
        self.rank, self.size = (0, 1) if self.alone else (get_rank(group), get_world_size(group))

    def exchanged(self, mine: Any) -> list[Any]:
        """What each rank gives."""
        if self.alone:
            return [mine]
        everyone: list[Any] = [None] * self.size
        all_gather_object(everyone, mine, group=self.group)
        return everyone

    def all(self, step: str, call: Callable[[], Any]) -> list[Any]:
        """What the call gives on each rank. CheckpointException where it has failed somewhere."""
        cause: Exception | None = None
        mine: tuple[Any, Any] = (None, None)
        try:
            mine = (call(), None)
        except Exception as error:
            cause, mine = error, (None, failure_of(error))
        everyone = self.exchanged(mine)
        failures = {rank: failure for rank, (_, failure) in enumerate(everyone) if failure is not None}
        if failures:
            raise CheckpointException(step, failures) from cause
        return [value for value, _ in everyone]

    def first(self, step: str, call: Callable[[], Any]) -> Any:
        """What the call gives on the coordinator, on all."""
        return self.all(step, lambda: call() if self.rank == 0 else None)[0]


class RanksBeside(Ranks):
    """The same for a thread beside the program, whose collectives must not meet the program's: they tell each other by the group's store.

    All processes make it in the program's own thread. TimeoutError where one has not come to a step within `limit` seconds.
    """

    def __init__(self, group: Any, alone: bool, limit: float) -> None:
        super().__init__(group, alone)
        self.limit, self.step = limit, 0
        self.name = super().exchanged(uuid.uuid4().hex)[0]

    def exchanged(self, mine: Any) -> list[Any]:
        """What each rank gives."""
        members = None if self.alone else member(self.group)
        if members is None:
            return [mine]
        self.step += 1
        keys = [f"checkpoint/{self.name}/{self.step}/{rank}" for rank in range(self.size)]
        members.store.set(keys[self.rank], pickle.dumps(mine))
        for rank, key in enumerate(keys):
            try:
                members.store.wait([key], timedelta(seconds=self.limit))
            except DistStoreError as error:
                raise TimeoutError(f"async_save: rank {rank} has not come to step {self.step} within {self.limit:g} s") from error
        everyone = [pickle.loads(text) for text in members.store.multi_get(keys)]
        if members.store.add(f"checkpoint/{self.name}/{self.step}/read", 1) == self.size:  # the last one to read clears the table
            for key in [*keys, f"checkpoint/{self.name}/{self.step}/read"]:
                members.store.delete_key(key)
        return everyone


def save(states: dict[str, Any], writer: StorageWriter, checkpoint_id: Any, planner: SavePlanner, ranks: Ranks) -> kinds.Metadata:
    """torch.distributed.checkpoint.save, of states that are plain values."""
    first = ranks.rank == 0

    def local() -> Any:
        if checkpoint_id is not None:
            writer.reset(checkpoint_id)
        planner.set_up_planner(states, storage_meta=writer.storage_meta(), is_coordinator=first)
        writer.set_up_storage_writer(first)
        return writer.prepare_local_plan(planner.create_local_plan())

    plans = ranks.all("plan", local)

    def together() -> Any:
        planned, metadata = planner.create_global_plan(plans)
        return writer.prepare_global_plan(planned), metadata

    planned, metadata = ranks.first("plan", together)
    with flambeau.no_grad():
        results = ranks.all("write", lambda: writer.write_data(planner.finish_plan(planned[ranks.rank]), planner).wait())

    def finish() -> kinds.Metadata:
        writer.finish(metadata, results)
        return metadata

    found: kinds.Metadata = ranks.first("write", finish)
    return found


def load(state_dict: Any, reader: StorageReader, checkpoint_id: Any, planner: LoadPlanner, group: Any, alone: bool) -> None:
    """torch.distributed.checkpoint.load."""
    states = states_of(state_dict)
    fill(states, reader, checkpoint_id, planner, group, alone)
    for key, value in state_dict.items():
        if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
            value.load_state_dict(states[key])
        else:
            state_dict[key] = states[key]


def fill(states: dict[str, Any], reader: StorageReader, checkpoint_id: Any, planner: LoadPlanner, group: Any, alone: bool) -> None:
    """load() of states that are plain values; a planner may add some."""
    ranks = Ranks(group, alone)
    first = ranks.rank == 0

    def local() -> Any:
        if checkpoint_id is not None:
            reader.reset(checkpoint_id)
        metadata = reader.read_metadata()
        planner.set_up_planner(states, metadata, first)
        reader.set_up_storage_reader(metadata, first)
        return reader.prepare_local_plan(planner.create_local_plan())

    plans = ranks.all("plan", local)
    planned = ranks.first("plan", lambda: reader.prepare_global_plan(planner.create_global_plan(plans)))

    def read() -> None:
        with flambeau.no_grad():
            reader.read_data(planner.finish_plan(planned[ranks.rank]), planner).wait()

    ranks.all("read", read)
