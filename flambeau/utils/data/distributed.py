"""torch.utils.data.distributed."""

from flambeau.utils.data.sampler import DistributedSampler

__all__ = ["DistributedSampler"]
