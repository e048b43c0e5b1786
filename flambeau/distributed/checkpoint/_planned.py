"""Saving and loading by a planner and a storage of somebody's own, in the order in which PyTorch calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.distributed.checkpoint import metadata as kinds
from flambeau.distributed.checkpoint._failures import CheckpointException
from flambeau.distributed.checkpoint._items import states_of
from flambeau.distributed.checkpoint.planner import LoadPlanner, SavePlanner
from flambeau.distributed.checkpoint.storage import StorageReader, StorageWriter
from flambeau.distributed.group import get_rank, get_world_size, is_initialized
from flambeau.distributed.objects import all_gather_object


class _Ranks:
    """The processes of a checkpoint. A failure of one is raised on all."""

    def __init__(self, group: Any, alone: bool) -> None:
        self.group, self.alone = group, alone or not is_initialized()
        self.rank, self.size = (0, 1) if self.alone else (get_rank(group), get_world_size(group))

    def all(self, step: str, call: Callable[[], Any]) -> list[Any]:
        """What the call gives on each rank. CheckpointException where it has failed somewhere."""
        try:
            mine: tuple[Any, Exception | None] = (call(), None)
        except Exception as error:
            mine = (None, error)
        everyone: list[Any] = [mine]
        if not self.alone:
            everyone = [None] * self.size
            all_gather_object(everyone, mine, group=self.group)
        failures = {rank: error for rank, (_, error) in enumerate(everyone) if error is not None}
        if failures:
            raise CheckpointException(step, failures) from mine[1]
        return [value for value, _ in everyone]

    def first(self, step: str, call: Callable[[], Any]) -> Any:
        """What the call gives on the coordinator, on all."""
        return self.all(step, lambda: call() if self.rank == 0 else None)[0]


def save(state_dict: Any, writer: StorageWriter, checkpoint_id: Any, planner: SavePlanner, group: Any, alone: bool) -> kinds.Metadata:
    """torch.distributed.checkpoint.save."""
    ranks = _Ranks(group, alone)
    first = ranks.rank == 0

    def local() -> Any:
        if checkpoint_id is not None:
            writer.reset(checkpoint_id)
        planner.set_up_planner(states_of(state_dict), storage_meta=writer.storage_meta(), is_coordinator=first)
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
    ranks = _Ranks(group, alone)
    first = ranks.rank == 0
    states = states_of(state_dict)

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
    for key, value in state_dict.items():
        if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
            value.load_state_dict(states[key])
        else:
            state_dict[key] = states[key]
