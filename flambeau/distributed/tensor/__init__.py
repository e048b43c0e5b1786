"""torch.distributed.tensor: tensors that are spread over processes."""

from __future__ import annotations

import sys as _sys

from flambeau.distributed.device_mesh import DeviceMesh as DeviceMesh
from flambeau.distributed.device_mesh import init_device_mesh as init_device_mesh
from flambeau.distributed.tensor import api as _module
from flambeau.distributed.tensor.api import DTensor, distribute_module, distribute_tensor
from flambeau.distributed.tensor.factories import empty, full, ones, rand, randn, zeros
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _StridedShard
from flambeau.names import answering as _answering

_api = _sys.modules[f"{__name__}._api"] = _module  # PyTorch's name of the file
__getattr__ = _answering("torch.distributed.tensor", globals())
