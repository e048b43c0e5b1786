"""torch.fx.passes: what is computed over a graph: shapes."""

from __future__ import annotations

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.fx.passes", globals())
