"""torch.nn.qat: the older name of torch.ao.nn.qat."""

from __future__ import annotations

from flambeau.ao.nn.qat import *  # noqa: F403
