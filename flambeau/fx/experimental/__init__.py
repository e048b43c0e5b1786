"""torch.fx.experimental: parts of PyTorch's tracing of programs, as far as packages ask them questions."""

from __future__ import annotations

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.fx.experimental", globals())
