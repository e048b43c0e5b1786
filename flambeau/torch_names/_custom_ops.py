"""torch._custom_ops: the older interface of torch.library."""

from __future__ import annotations

from flambeau.library import get_ctx as get_ctx
