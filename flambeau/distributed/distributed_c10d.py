"""torch.distributed.distributed_c10d: where PyTorch's collectives are defined."""

from __future__ import annotations

from flambeau.distributed.collectives import *  # noqa: F403
from flambeau.distributed.group import *  # noqa: F403
