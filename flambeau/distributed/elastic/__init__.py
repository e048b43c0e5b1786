"""torch.distributed.elastic: workers that are started again."""
