"""torch.distributed.checkpoint.state_dict_saver: where PyTorch defines save and async_save."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.checkpoint._saving import async_save, save


def save_state_dict(
    state_dict: Any, storage_writer: Any, process_group: Any = None, coordinator_rank: int = 0, no_dist: bool = False, planner: Any = None
) -> Any:
    """The old name of save."""
    return save(state_dict, storage_writer=storage_writer, planner=planner, process_group=process_group, no_dist=no_dist)


__all__ = ["async_save", "save", "save_state_dict"]
