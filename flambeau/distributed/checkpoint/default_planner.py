"""torch.distributed.checkpoint.default_planner: options of saving and loading."""

from __future__ import annotations

from typing import Any


class DefaultSavePlanner:
    """Options of save; nested states have names with dots, and what several processes have is written once."""

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, dedup_replicated_tensors: Any = None, **options: Any) -> None:
        if not flatten_state_dict:
            raise NotImplementedError("DefaultSavePlanner: flatten_state_dict=False is not there; nested states have names with dots")


class DefaultLoadPlanner:
    """Options of load. `allow_partial_load`: names that the checkpoint has not keep what they have."""

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False) -> None:
        if not flatten_state_dict:
            raise NotImplementedError("DefaultLoadPlanner: flatten_state_dict=False is not there; nested states have names with dots")
        self.allow_partial_load = allow_partial_load
