"""torch.distributed.algorithms: uneven inputs, hooks on communication, checkpointing wrappers."""
