"""torch.distributed.elastic.utils.data: samplers and iterators that begin in the middle."""

from flambeau.distributed.elastic.utils.data.cycling_iterator import CyclingIterator
from flambeau.distributed.elastic.utils.data.elastic_distributed_sampler import ElasticDistributedSampler

__all__ = ["CyclingIterator", "ElasticDistributedSampler"]
