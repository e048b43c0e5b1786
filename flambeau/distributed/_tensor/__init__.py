"""torch.distributed._tensor: the older name of torch.distributed.tensor."""

from __future__ import annotations

from flambeau.distributed.tensor import *
from flambeau.distributed.tensor import experimental as experimental
