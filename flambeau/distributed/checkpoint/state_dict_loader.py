"""torch.distributed.checkpoint.state_dict_loader: where PyTorch defines load."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.checkpoint._saving import load
from flambeau.distributed.several import define as _define


def load_state_dict(
    state_dict: Any, storage_reader: Any, process_group: Any = None, coordinator_rank: int = 0, no_dist: bool = False, planner: Any = None
) -> None:
    """The old name of load."""
    load(state_dict, storage_reader=storage_reader, planner=planner, process_group=process_group, no_dist=no_dist)


_define(
    globals(),
    """
_load_state_dict(*args, **options) !
""",
    "",
)
