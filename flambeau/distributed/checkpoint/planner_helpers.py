"""torch.distributed.checkpoint.planner_helpers: what planners of one's own make items of."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.checkpoint.default_planner import boxes, create_default_local_save_plan
from flambeau.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorStorageMetadata
from flambeau.distributed.checkpoint.planner import ReadItem, WriteItem


def _create_write_items(fqn: str, object: Any) -> list[WriteItem]:
    """What this process could write of a value: its part of a tensor, each of its parts of a ShardedTensor, or bytes."""
    return create_default_local_save_plan({fqn: object}, True).items


def _create_write_item_for_tensor(fqn: str, tensor: Any) -> WriteItem:
    """The item of a whole tensor."""
    return _create_write_items(fqn, tensor)[0]


def create_read_items_for_chunk_list(fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: list[ChunkStorageMetadata]) -> list[ReadItem]:
    """What parts share with those of a checkpoint."""
    return [item for chunk in local_chunks for item in boxes(fqn, checkpoint_md, tuple(chunk.offsets), tuple(chunk.sizes))]
