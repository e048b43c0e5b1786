"""torch.distributed.algorithms: uneven inputs, hooks on communication, checkpointing wrappers."""

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.distributed.algorithms", globals())
