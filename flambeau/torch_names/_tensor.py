"""torch._tensor: the class Tensor, and what pickles of PyTorch name beside it."""

from flambeau.io.globals import rebuild_any_type as _rebuild_from_type_v2
from flambeau.tensor import Tensor

__all__ = ["Tensor", "_rebuild_from_type_v2"]
