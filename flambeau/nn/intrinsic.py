"""torch.nn.intrinsic: the older name of torch.ao.nn.intrinsic."""

from __future__ import annotations

from flambeau.ao.nn.intrinsic import *  # noqa: F403
