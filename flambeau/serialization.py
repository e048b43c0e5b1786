"""torch.serialization: saving, loading, and the list of what a checkpoint may contain."""

from flambeau.io.checkpoint import load, save
from flambeau.io.globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]
