"""torch.distributed._tensor: the older name of torch.distributed.tensor."""

from __future__ import annotations

import sys as _sys

from flambeau.distributed._tensor import experimental as experimental
from flambeau.distributed.tensor import *
from flambeau.distributed.tensor import _dtensor_spec, _utils, api, placement_types

for _module in (_dtensor_spec, _utils, api, placement_types):  # one module each, under both names
    _sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
