"""torch._functorch: the older homes of torch.func's functions, and modules as functions of a tuple of parameters."""

from __future__ import annotations

from flambeau.names import answering as _answering

__getattr__ = _answering("torch._functorch", globals())
