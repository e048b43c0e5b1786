"""torch.distributed.tensor: tensors that are spread over processes: their placements; a tensor is not spread over one process."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh as DeviceMesh
from flambeau.distributed.device_mesh import init_device_mesh as init_device_mesh
from flambeau.distributed.several import define as _define
from flambeau.distributed.several import refuse as _refuse
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from flambeau.tensor import Tensor


class DTensor(Tensor):
    """Cannot be made: it is spread over processes, and there is one. No tensor is one, so `isinstance` is False."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        _refuse("DTensor")

    @staticmethod
    def from_local(local_tensor: Any, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        _refuse("DTensor.from_local")


_define(globals(), """
distribute_tensor(tensor, device_mesh=None, placements=None, **options) !
distribute_module(module, device_mesh=None, partition_fn=None, input_fn=None, output_fn=None) !
empty(*size, **options) !
full(size, fill_value, **options) !
ones(*size, **options) !
rand(*size, **options) !
randn(*size, **options) !
zeros(*size, **options) !
""")
