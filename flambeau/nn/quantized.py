"""torch.nn.quantized: the older name of torch.ao.nn.quantized."""

from __future__ import annotations

from flambeau.ao.nn.quantized import *  # noqa: F403
