"""What a tensor is beside its size, as checkpoints of several processes and ShardedTensors keep it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from flambeau import contiguous_format, float32, strided


class _MEM_FORMAT_ENCODING(Enum):
    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


@dataclass
class TensorProperties:
    """What a tensor is beside its size."""

    dtype: Any = float32
    layout: Any = strided
    requires_grad: bool = False
    memory_format: Any = contiguous_format
    pin_memory: bool = False

    def __getstate__(self) -> Any:
        return self.dtype, self.layout, self.requires_grad, _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT, self.pin_memory

    def __setstate__(self, state: Any) -> None:
        self.dtype, self.layout, self.requires_grad, _, self.pin_memory = state
        self.memory_format = contiguous_format

    @staticmethod
    def create_from_tensor(tensor: Any) -> TensorProperties:
        """Of a tensor."""
        return TensorProperties(tensor.dtype, tensor.layout, tensor.requires_grad)


for _kind in (_MEM_FORMAT_ENCODING, TensorProperties):  # under which names files have them
    _kind.__module__ = "flambeau.distributed.checkpoint.metadata"
