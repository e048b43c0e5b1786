"""torch.distributed._shard: ShardedTensor, what DTensor has taken the place of; older programs keep tensors of checkpoints in it."""
