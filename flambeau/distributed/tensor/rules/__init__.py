"""Rules of DTensors: one table by the name of the function, filled by subject."""

from __future__ import annotations

from typing import Any, Final

from flambeau.distributed.tensor.rules import filling, layers, losses, matrices, pointwise, products, reductions, shapes

# What is answered by the local tensor as it is.
PLAIN: Final = frozenset(
    """__get__ __set__ is_floating_point is_complex is_signed element_size register_hook register_post_accumulate_grad_hook retain_grad is_leaf data_ptr
    untyped_storage storage storage_offset get_device is_tensor __hash__ is_pinned is_shared is_inference is_same_size result_type can_cast""".split()
)
RULES: Final[dict[str, Any]] = {**pointwise.RULES, **shapes.RULES, **products.RULES, **matrices.RULES, **reductions.RULES, **layers.RULES, **losses.RULES}
DIRECT: Final[dict[str, Any]] = {**filling.DIRECT, **reductions.DIRECT, **layers.DIRECT}  # functions that see to the placements themselves
