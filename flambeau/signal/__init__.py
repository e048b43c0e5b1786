"""torch.signal."""

from flambeau.signal import windows

__all__ = ["windows"]
