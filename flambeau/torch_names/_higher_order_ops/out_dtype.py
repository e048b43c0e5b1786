"""out_dtype: an operator of torch.ops.aten whose result has another dtype than its arguments, which are not rounded to theirs on the way."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.utils import _pytree as pytree


def out_dtype(op: Any, output_dtype: Any, *args: Any) -> Any:
    """`op` (an overload, as torch.ops.aten.mm.default) of the arguments in the dtype that they and `output_dtype` promote to, as `output_dtype`.

    A product of two int8 matrices in int32 multiplies bytes.
    """
    if not isinstance(op, torch._ops.OpOverload):
        raise ValueError(f"out_dtype's first argument must be an OpOverload, but got {op!r}")
    tensors = [a for a in pytree.tree_leaves(args) if isinstance(a, torch.Tensor)]
    if op is torch.ops.aten.mm.default and output_dtype is torch.int32 and [t.dtype for t in tensors] == [torch.int8] * 2:
        return torch._int_mm(*args)
    kind = torch.result_type(torch.ones(1, dtype=output_dtype), 0)
    for t in tensors:
        kind = torch.promote_types(kind, t.dtype)
    return op(*pytree.tree_map(lambda a: a.to(kind) if isinstance(a, torch.Tensor) else a, args)).to(output_dtype)
