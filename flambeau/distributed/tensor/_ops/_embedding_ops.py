"""torch.distributed.tensor._ops._embedding_ops: the placement of what was looked up in parts of a table."""

from flambeau.distributed.tensor.placement_types import _MaskPartial

__all__ = ["_MaskPartial"]
