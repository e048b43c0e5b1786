"""torch.signal."""

from flambeau.signal import windows

__all__ = ["windows"]

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.signal", globals())
