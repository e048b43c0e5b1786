"""torch.distributed.algorithms.model_averaging: parameters averaged over processes."""
