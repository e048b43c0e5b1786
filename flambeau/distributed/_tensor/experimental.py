"""torch.distributed._tensor.experimental: the older name of torch.distributed.tensor.experimental."""

from __future__ import annotations

from flambeau.distributed.tensor.experimental import *  # noqa: F403
