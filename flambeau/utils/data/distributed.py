"""torch.utils.data.distributed."""

from flambeau.utils.data.sampler import DistributedSampler

__all__ = ["DistributedSampler"]

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.utils.data.distributed", globals())
