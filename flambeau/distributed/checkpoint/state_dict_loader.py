"""torch.distributed.checkpoint.state_dict_loader: where PyTorch defines load."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.checkpoint._planned import fill
from flambeau.distributed.checkpoint._saving import load
from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner


def load_state_dict(
    state_dict: Any, storage_reader: Any, process_group: Any = None, coordinator_rank: int = 0, no_dist: bool = False, planner: Any = None
) -> None:
    """The old name of load."""
    load(state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group, no_dist=no_dist)


def _load_state_dict(
    state_dict: Any, storage_reader: Any, process_group: Any = None, coordinator_rank: int = 0, no_dist: bool = False, planner: Any = None
) -> None:
    """load() of a state of plain values, to which a planner may add some."""
    fill(state_dict, storage_reader, None, planner or DefaultLoadPlanner(), process_group, no_dist)
