"""torch.distributed.checkpoint.utils: values of a state by the names of their parts."""

from __future__ import annotations

from typing import Any

from flambeau.distributed._shard.sharded_tensor import ShardedTensor
from flambeau.distributed.checkpoint._failures import CheckpointException as CheckpointException
from flambeau.distributed.checkpoint._items import local_at
from flambeau.distributed.checkpoint.metadata import MetadataIndex
from flambeau.tensor import Tensor


def find_tensor_shard(tensor: Any, index: MetadataIndex) -> Any:
    """This process's tensor of a part. ValueError where it has none there."""
    if isinstance(tensor, ShardedTensor):
        if index.offset is None:
            raise ValueError(f"Cannot lookup {index.fqn} since its a ShardedTensor and no offset was provided")
        return local_at(index.fqn, tensor, index.offset)
    if index.offset is not None and tuple(index.offset) != (0,) * tensor.ndim:
        raise ValueError(f"FQN: '{index.fqn}' is not a ShardedTensor, can't find by offset: '{index.offset}'")
    return tensor


def find_state_dict_object(state_dict: Any, index: MetadataIndex) -> Any:
    """What a name of a state stands for. ValueError where there is none, or no part there."""
    if index.fqn not in state_dict:
        raise ValueError(f"Could not find FQN: '{index.fqn}'")
    found = state_dict[index.fqn]
    if isinstance(found, (Tensor, ShardedTensor)):
        return find_tensor_shard(found, index)
    if index.offset is not None:
        raise ValueError(f"FQN: '{index.fqn}' is not a ShardedTensor, can't find by offset: '{index.offset}'")
    return found
