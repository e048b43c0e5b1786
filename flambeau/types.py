"""torch.types: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Any, TypeAlias

from flambeau.devices import Device as _device
from flambeau.dtypes import dtype as _dtype
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size

_int = builtins.int
_float = builtins.float
_bool = builtins.bool
_complex = builtins.complex
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrTensorsOrGradEdge: TypeAlias = Any
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_symsize = _size
_dispatchkey: TypeAlias = str
IntLikeType = int
FloatLikeType = float
BoolLikeType = bool
py_sym_types = ()
PySymType: TypeAlias = int | float | bool
Number: TypeAlias = int | float | bool
Device: TypeAlias = _device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
StorageWeakRef: TypeAlias = Any


class Storage:
    """What every storage has: bytes shared by tensors."""

    _cdata: int
    device: _device
    dtype: _dtype
    _torch_load_uninitialized: bool

    def __deepcopy__(self, memo: dict[int, Any]) -> Storage:
        raise NotImplementedError

    def _new_shared(self, size: int) -> Storage:
        raise NotImplementedError

    def element_size(self) -> int:
        """Bytes of one element."""
        raise NotImplementedError

    def is_shared(self) -> bool:
        """Whether other processes see it."""
        raise NotImplementedError

    def share_memory_(self) -> Storage:
        """Move it where other processes see it."""
        raise NotImplementedError

    def nbytes(self) -> int:
        """Bytes of all elements."""
        raise NotImplementedError

    def cpu(self) -> Storage:
        """It on the CPU."""
        raise NotImplementedError

    def data_ptr(self) -> int:
        """The address of the first element."""
        raise NotImplementedError


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.types", globals())
